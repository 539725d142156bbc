//! The pages of section 3: what the C headers declare, one page for each group
//! of calls and one for each header, which has what belongs to no group.

use super::header::{Block, Declaration, Group, Header, Item};
use super::roff::Page;
use super::{Files, Manual};

/// A header, and how programs are linked with its library.
struct Source {
    file: &'static str,
    text: &'static str,
    library: &'static str,
}

macro_rules! source {
    ($library:literal, $file:literal) => {
        Source {
            file: $file,
            text: include_str!(concat!("../../../", $library, "/include/", $file)),
            library: $library,
        }
    };
}

const SOURCES: [Source; 6] = [
    source!("portolan", "portolan.h"),
    source!("portolan", "portolan_matched.h"),
    source!("portolan", "portolan_onesided.h"),
    source!("atoll", "atoll.h"),
    source!("bsp", "bsp.h"),
    source!("bsp", "mcbsp.h"),
];

/// Adds the pages of all headers.
pub fn pages(manual: &Manual, files: &mut Files) {
    for source in &SOURCES {
        let header = Header::read(source.text);
        files.add(source.file, 3, overview(manual, source, &header));
        for function in header.own.functions() {
            files.add(function, 3, format!(".so man3/{}.3\n", source.file));
        }
        for group in &header.groups {
            let functions = group.functions();
            let Some((first, others)) = functions.split_first() else {
                continue;
            };
            files.add(first, 3, calls(manual, source, &header, group));
            for function in others {
                files.add(function, 3, format!(".so man3/{first}.3\n"));
            }
        }
    }
}

/// The page of a header: what holds for all of its calls, and what has no page
/// of its own.
fn overview(manual: &Manual, source: &Source, header: &Header) -> String {
    let mut page = Page::new(source.file, 3, &manual.date);
    let (first, rest) = header.about.split_first().expect("it says what it is");
    let Block::Paragraph(first) = first else {
        panic!("{}: begins with a list", source.file);
    };
    page.heading("NAME");
    let (line, more) = first.split_once(". ").unwrap_or((first, ""));
    page.paragraph(&format!(
        "{} - {}",
        source.file,
        line.trim_end_matches('.').replace("Portolan: ", "")
    ));
    synopsis(&mut page, source, &header.own);
    page.heading("DESCRIPTION");
    if !more.is_empty() {
        page.paragraph(more);
    }
    comment(&mut page, rest);
    let (without, with): (Vec<_>, Vec<_>) = header
        .groups
        .iter()
        .partition(|it| it.functions().is_empty());
    for group in [&header.own].into_iter().chain(without) {
        if group.items.is_empty() {
            continue;
        }
        page.heading(&group.title.to_uppercase());
        for item in &group.items {
            describe(&mut page, item);
        }
    }
    page.heading("CALLS");
    for group in with {
        let functions = group.functions();
        let text = format!("See {}(3): {}.", functions[0], functions.join(", "));
        page.item(&[group.title.as_str()], &text);
    }
    see_also(&mut page, source.file, None);
    page.finish()
}

/// The page of a group of calls.
fn calls(manual: &Manual, source: &Source, header: &Header, group: &Group) -> String {
    let functions = group.functions();
    let mut page = Page::new(functions[0], 3, &manual.date);
    page.heading("NAME");
    page.paragraph(&format!(
        "{} - {}",
        functions.join(", "),
        lower(&group.title)
    ));
    synopsis(&mut page, source, group);
    page.heading("DESCRIPTION");
    for item in &group.items {
        describe(&mut page, item);
    }
    page.heading("RETURN VALUE");
    page.paragraph(&format!(
        "What results mean, and what holds for every call, stands in {}(3). Errors of a single \
         call stand with its description.",
        if source.library == "portolan" {
            "portolan.h"
        } else {
            source.file
        }
    ));
    see_also(&mut page, source.file, Some((header, functions[0])));
    page.finish()
}

fn lower(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters.next().map(char::to_lowercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn synopsis(page: &mut Page, source: &Source, group: &Group) {
    page.heading("SYNOPSIS");
    page.code(&format!("#include <{}>", source.file));
    for item in &group.items {
        let functions = item.declarations.iter().filter_map(Declaration::function);
        let texts: Vec<_> = functions.map(|(_, text)| text).collect();
        if !texts.is_empty() {
            page.code(&texts.join("\n"));
        }
    }
    let library = source.library;
    page.paragraph(&format!(
        "Compile and link with `cc program.c $(pkg-config --cflags --libs {library})`."
    ));
}

/// A declaration and its comment.
fn describe(page: &mut Page, item: &Item) {
    if item.comment.is_empty() && item.declarations.iter().all(|it| it.function().is_some()) {
        // The synopsis shows them.
        return;
    }
    let mut titles = Vec::new();
    let mut constants = Vec::new();
    let mut types = Vec::new();
    for declaration in &item.declarations {
        match declaration {
            Declaration::Function { name, .. } => titles.push(format!("{name}()")),
            Declaration::Constant { name, value } => constants.push(format!("{name} {value}")),
            Declaration::Type { name, text } => {
                titles.push(name.clone());
                types.push(text.as_str());
            }
        }
    }
    if !titles.is_empty() {
        page.subheading(&titles.join(", "));
    }
    if let [Block::Paragraph(text), rest @ ..] = &item.comment[..]
        && !constants.is_empty()
    {
        let names: Vec<_> = constants.iter().map(String::as_str).collect();
        page.item(&names, text);
        comment(page, rest);
        return;
    }
    comment(page, &item.comment);
    if !constants.is_empty() {
        page.code(&constants.join("\n"));
    }
    for text in types {
        page.code(text);
    }
}

fn comment(page: &mut Page, blocks: &[Block]) {
    for block in blocks {
        match block {
            Block::Paragraph(text) => page.paragraph(text),
            Block::Term(term, text) => page.item(&[term.as_str()], text),
            Block::Bullet(text) => page.bullet(text),
        }
    }
}

/// Names the other pages of the header, and the other headers.
fn see_also(page: &mut Page, file: &str, group: Option<(&Header, &str)>) {
    let mut names: Vec<&str> = Vec::new();
    if let Some((header, own)) = group {
        let groups = header.groups.iter().map(Group::functions);
        let firsts = groups.filter_map(|functions| functions.first().copied());
        names.extend(firsts.filter(|first| *first != own));
        names.push(file);
    }
    let others = SOURCES.iter().map(|it| it.file);
    names.extend(others.filter(|other| *other != file));
    names.sort_unstable();
    page.heading("SEE ALSO");
    let pages = names.iter().map(|name| format!("{name}(3)"));
    let pages: Vec<_> = ["portolan(1)".to_owned()]
        .into_iter()
        .chain(pages)
        .chain(["portolan(7)".to_owned()])
        .collect();
    page.paragraph(&pages.join(", "));
}
