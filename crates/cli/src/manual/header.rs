//! Reads a C header: its groups of declarations, and the comments that say
//! what they do.
//!
//! What it relies on: a group begins with `/* ---- Title ---- */`. A comment
//! belongs to the declarations right below it, up to an empty line; one above
//! an empty line or above another comment belongs to the group. Within a
//! comment an empty line ends a paragraph. A line `TERM  text`, with two blanks
//! or more between, is an item of a list, and so is a line `- text`; indented
//! lines continue what they follow.

/// A header, read.
pub struct Header {
    /// Its first comment.
    pub about: Vec<Block>,
    /// What stands above the first title.
    pub own: Group,
    pub groups: Vec<Group>,
}

/// What stands below one title.
pub struct Group {
    pub title: String,
    pub items: Vec<Item>,
}

/// A comment with what it is about, which may be nothing.
#[derive(Default)]
pub struct Item {
    pub comment: Vec<Block>,
    pub declarations: Vec<Declaration>,
}

/// A part of a comment.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    Paragraph(String),
    Term(String, String),
    Bullet(String),
}

/// A declaration, its text as it stands in the header. Of a function with a
/// body the body is left out.
#[derive(Debug, PartialEq, Eq)]
pub enum Declaration {
    Function { name: String, text: String },
    Constant { name: String, value: String },
    Type { name: String, text: String },
}

impl Group {
    /// The names of its functions, in their order, but those that are only there
    /// to be compiled into the program come last.
    pub fn functions(&self) -> Vec<&str> {
        let declarations = self.items.iter().flat_map(|item| &item.declarations);
        let mut functions: Vec<_> = declarations.filter_map(Declaration::function).collect();
        functions.sort_by_key(|(_, text)| text.starts_with("static inline"));
        functions.into_iter().map(|(name, _)| name).collect()
    }
}

impl Declaration {
    /// Its name and text, if it is a function.
    pub fn function(&self) -> Option<(&str, &str)> {
        match self {
            Self::Function { name, text } => Some((name, text)),
            Self::Constant { .. } | Self::Type { .. } => None,
        }
    }
}

impl Header {
    /// Reads the text of a header.
    pub fn read(text: &str) -> Self {
        let mut header = Self {
            about: Vec::new(),
            own: Group {
                title: "Definitions".to_owned(),
                items: Vec::new(),
            },
            groups: Vec::new(),
        };
        let mut item = Item::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("/*") {
                header.keep(&mut item);
                if let Some(title) = title(line) {
                    header.groups.push(Group {
                        title: title.to_owned(),
                        items: Vec::new(),
                    });
                    continue;
                }
                let comment = gather(line, &mut lines, |text| text.contains("*/"));
                item.comment = blocks(&comment);
                if header.about.is_empty() {
                    header.about = std::mem::take(&mut item.comment);
                }
            } else if line.trim().is_empty() {
                header.keep(&mut item);
            } else if let Some(rest) = line.strip_prefix("#define ") {
                let whole = gather(rest, &mut lines, |text| !text.ends_with('\\'));
                item.declarations.extend(constant(&whole));
            } else if !line.starts_with(['#', '}']) && !line.starts_with("extern ") {
                let whole = gather(line, &mut lines, is_whole);
                item.declarations.push(declaration(&whole));
            }
        }
        header.keep(&mut item);
        header
    }

    /// Ends an item.
    fn keep(&mut self, item: &mut Item) {
        let item = std::mem::take(item);
        if item.comment.is_empty() && item.declarations.is_empty() {
            return;
        }
        let group = self.groups.last_mut().unwrap_or(&mut self.own);
        group.items.push(item);
    }
}

/// The title of a group, if the line begins one.
fn title(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("/* --")?.strip_suffix("-- */")?;
    Some(rest.trim_matches(['-', ' ']))
}

/// `first` with the lines that follow until all is `whole`.
fn gather<'a>(
    first: &str,
    lines: &mut impl Iterator<Item = &'a str>,
    whole: impl Fn(&str) -> bool,
) -> String {
    let mut text = first.to_owned();
    while !whole(&text)
        && let Some(line) = lines.next()
    {
        text.push('\n');
        text.push_str(line);
    }
    text
}

/// Whether a declaration ends here: its braces are closed.
fn is_whole(text: &str) -> bool {
    let count = |brace| text.matches(brace).count();
    count('{') == count('}') && text.ends_with([';', '}'])
}

/// A macro: those without a value are the header's own.
fn constant(text: &str) -> Option<Declaration> {
    let joined = text.replace("\\\n", " ");
    let end = |it: char| it.is_whitespace();
    let (name, value) = joined.split_once(end)?;
    Some(Declaration::Constant {
        name: name.to_owned(),
        value: value.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

fn declaration(text: &str) -> Declaration {
    if !text.starts_with("typedef") {
        let text = match text.split_once('{') {
            Some((head, _)) => format!("{};", head.trim_end()),
            None => text.to_owned(),
        };
        let head = text.split('(').next().unwrap_or_default();
        let name = head.rsplit([' ', '*', '\n']).next().unwrap_or_default();
        return Declaration::Function {
            name: name.to_owned(),
            text,
        };
    }
    // The last name; that of a function's type stands in parentheses.
    let name = match text.split_once("(*") {
        Some((_, rest)) => rest.split(')').next(),
        None => text.trim_end_matches(';').rsplit([' ', '}', '*']).next(),
    };
    Declaration::Type {
        name: name.unwrap_or_default().to_owned(),
        text: text.to_owned(),
    }
}

/// What a comment says, without what marks it as one.
fn blocks(comment: &str) -> Vec<Block> {
    let inner = comment
        .trim_start_matches("/*")
        .split("*/")
        .next()
        .unwrap_or_default();
    let mut blocks = Blocks::default();
    for line in inner.lines() {
        let line = line.trim_end();
        let line = line.strip_prefix(" *").unwrap_or(line);
        // The lines' own margin is one blank wide.
        blocks.line(line.strip_prefix(' ').unwrap_or(line));
    }
    blocks.end();
    blocks.done
}

/// Those of a comment, one of which is being read.
#[derive(Default)]
struct Blocks {
    done: Vec<Block>,
    open: Option<Block>,
    /// Lines of the open one are indented: one that is not begins another.
    hangs: bool,
}

impl Blocks {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if text.is_empty() || text.starts_with("SPDX-") {
            return self.end();
        }
        if let Some(text) = text.strip_prefix("- ") {
            return self.begin(Block::Bullet(text.to_owned()));
        }
        let indented = line.starts_with(' ');
        if !indented && let Some((term, text)) = term(text) {
            return self.begin(Block::Term(term.to_owned(), text.to_owned()));
        }
        match &mut self.open {
            Some(Block::Paragraph(open)) if indented || !self.hangs => add(open, text),
            Some(Block::Term(_, open) | Block::Bullet(open)) if indented => add(open, text),
            _ => return self.begin(Block::Paragraph(text.to_owned())),
        }
        self.hangs |= indented;
    }

    fn begin(&mut self, block: Block) {
        self.end();
        self.open = Some(block);
        self.hangs = false;
    }

    fn end(&mut self) {
        self.done.extend(self.open.take());
    }
}

fn add(text: &mut String, more: &str) {
    text.push(' ');
    text.push_str(more);
}

/// The two halves of an item of a list.
fn term(line: &str) -> Option<(&str, &str)> {
    /// Longer ones are text.
    const TERM_CHARS_MAX: usize = 40;
    let (term, text) = line.split_once("  ")?;
    (term.chars().count() <= TERM_CHARS_MAX).then(|| (term, text.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"/*
 * Sample: what this is.
 *
 * SPDX-License-Identifier: MIT
 *
 * Results.  An int is a count,
 *   or an error.
 * Order  matters.
 * Text at the margin,
 *   with more of it.
 * Another text.
 */
#ifndef SAMPLE_H
#define SAMPLE_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Any. */
#define SAMPLE_ANY 0u

/* ---- Limits ------------------ */

/* At most so many. */
#define SAMPLE_MAX 20u
#define SAMPLE_BOTH \
    ((1 << 2) | \
     3)

/* ---- Calls ------------------- */

/* Errors of every call:
 * -EAGAIN    no credit now:
 *            try again
 * -EPIPE, ...  it is gone
 * and nothing else. */

/* How it is told. */
/* Called with each. */
typedef void (*sample_handler)(int what,
                               void *user);

/* What is sent:
 *  - this, and
 *    more of this
 *  - that */
typedef struct sample_options {
    /* Its size. */
    uint32_t size;
} sample_options;

static inline void sample_options_init(sample_options *options)
{
    if (options) {
        options->size = 1;
    }
}

/* Sends, and so on. */
const char *sample_send(int to,
                        const void *data);
int sample_try(void);

#ifdef __cplusplus
}
#endif
#endif
"#;

    fn paragraph(text: &str) -> Block {
        Block::Paragraph(text.to_owned())
    }

    fn term(term: &str, text: &str) -> Block {
        Block::Term(term.to_owned(), text.to_owned())
    }

    #[test]
    fn comments_stand_with_what_they_are_about() {
        let header = Header::read(SAMPLE);
        assert_eq!(
            header.about,
            [
                paragraph("Sample: what this is."),
                term("Results.", "An int is a count, or an error."),
                term("Order", "matters."),
                paragraph("Text at the margin, with more of it."),
                paragraph("Another text."),
            ]
        );
        let titles: Vec<_> = header.groups.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(titles, ["Limits", "Calls"]);
        let [limits, calls] = &header.groups[..] else {
            panic!("two groups");
        };
        assert!(limits.functions().is_empty());
        assert_eq!(header.own.items.len(), 1);
        assert_eq!(limits.items.len(), 1);
        assert_eq!(
            limits.items[0].declarations[1],
            Declaration::Constant {
                name: "SAMPLE_BOTH".to_owned(),
                value: "((1 << 2) | 3)".to_owned()
            }
        );
        assert_eq!(
            calls.functions(),
            ["sample_send", "sample_try", "sample_options_init"]
        );
        assert_eq!(
            calls.items[0].comment,
            [
                paragraph("Errors of every call:"),
                term("-EAGAIN", "no credit now: try again"),
                term("-EPIPE, ...", "it is gone"),
                paragraph("and nothing else."),
            ]
        );
        assert!(calls.items[0].declarations.is_empty());
    }

    #[test]
    fn declarations_have_their_names() {
        let header = Header::read(SAMPLE);
        let items = &header.groups[1].items;
        let [_, told, handler, options, init, send] = &items[..] else {
            panic!("{} items", items.len());
        };
        assert!(told.declarations.is_empty());
        let name = |item: &Item| match &item.declarations[0] {
            Declaration::Type { name, .. }
            | Declaration::Function { name, .. }
            | Declaration::Constant { name, .. } => name.clone(),
        };
        assert_eq!(name(handler), "sample_handler");
        assert_eq!(name(options), "sample_options");
        assert_eq!(
            options.comment[1],
            Block::Bullet("this, and more of this".to_owned())
        );
        assert_eq!(
            init.declarations[0],
            Declaration::Function {
                name: "sample_options_init".to_owned(),
                text: "static inline void sample_options_init(sample_options *options);".to_owned()
            }
        );
        assert_eq!(send.declarations.len(), 2);
        assert_eq!(name(send), "sample_send");
    }
}
