//! The source of a man page, in man(7)'s language, which both `man` and
//! `mandoc` read.

/// Longest line of the source, characters, as far as words allow it.
const LINE_CHARS: usize = 78;

/// Goes before each page: an apostrophe that is one, whoever reads.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// A page that is being written.
pub struct Page {
    text: String,
    /// A heading was the last: a paragraph that follows it needs no macro.
    after_heading: bool,
}

impl Page {
    /// Begins a page with its title line. Words are not divided: a divided name
    /// cannot be searched for.
    pub fn new(name: &str, section: u8, date: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let name = name.to_uppercase();
        Self {
            text: format!(
                "{PREAMBLE}.TH {name} {section} {date} \"Portolan {version}\" \"Portolan Manual\"\n\
                 .nh\n.ad l\n"
            ),
            after_heading: true,
        }
    }

    pub fn heading(&mut self, text: &str) {
        self.control("SH", text);
        self.after_heading = true;
    }

    pub fn subheading(&mut self, text: &str) {
        self.control("SS", text);
        self.after_heading = true;
    }

    fn control(&mut self, name: &str, text: &str) {
        let text = escape(text).replace('"', "\\(dq");
        self.text.push_str(&format!(".{name} \"{text}\"\n"));
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.after_heading) {
            self.text.push_str(".PP\n");
        }
    }

    /// A paragraph: words in backquotes are code, and so are names with
    /// parentheses behind them.
    pub fn paragraph(&mut self, text: &str) {
        self.separate();
        self.fill(text);
    }

    /// Something with what is to be said of it, which stands indented below.
    pub fn item(&mut self, names: &[&str], text: &str) {
        self.after_heading = false;
        for (index, name) in names.iter().enumerate() {
            self.text
                .push_str(if index == 0 { ".TP\n" } else { ".TQ\n" });
            let name = code(name);
            self.text.push_str(&format!("\\fB{name}\\fR\n"));
        }
        self.fill(text);
    }

    /// One of a list.
    pub fn bullet(&mut self, text: &str) {
        self.after_heading = false;
        self.text.push_str(".IP \\(bu 2\n");
        self.fill(text);
    }

    /// Lines that are shown as they are.
    pub fn code(&mut self, lines: &str) {
        self.separate();
        self.text.push_str(".RS 4\n.nf\n");
        for line in lines.lines() {
            self.text.push_str(&guarded(&code(line)));
            self.text.push('\n');
        }
        self.text.push_str(".fi\n.RE\n");
    }

    /// Source that is there already.
    pub fn raw(&mut self, source: &str) {
        self.text.push_str(source);
        self.after_heading = source
            .lines()
            .last()
            .is_some_and(|it| it.starts_with(".SH"));
    }

    fn fill(&mut self, text: &str) {
        let mut line = String::new();
        for word in marked(text).split_whitespace() {
            let full = line.chars().count() + word.chars().count() >= LINE_CHARS;
            if full && !line.is_empty() {
                self.text.push_str(&guarded(&line));
                self.text.push('\n');
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            self.text.push_str(&guarded(&line));
            self.text.push('\n');
        }
    }

    /// The whole source.
    pub fn finish(self) -> String {
        self.text
    }
}

/// A line of text that is no control line, whatever it begins with.
fn guarded(line: &str) -> String {
    if line.starts_with(['.', '\'']) {
        format!("\\&{line}")
    } else {
        line.to_owned()
    }
}

/// Text in which no character means anything to roff. A minus that stands for
/// itself, as in options and errors, is one that begins a word.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    let mut before = ' ';
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\e"),
            '\'' => escaped.push_str("\\*(Aq"),
            '-' if !before.is_alphanumeric() => escaped.push_str("\\-"),
            '~' => escaped.push_str("\\(ti"),
            '^' => escaped.push_str("\\(ha"),
            '`' => escaped.push_str("\\(ga"),
            _ => escaped.push(character),
        }
        before = character;
    }
    escaped
}

/// The same of code, in which every minus stands for itself.
fn code(text: &str) -> String {
    escape(text).replace('-', "\\-").replace("\\\\-", "\\-")
}

/// Text with what is code in bold.
fn marked(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            out.push_str(&format!("\\fB{}\\fR", code(part)));
            continue;
        }
        for (index, word) in part.split(' ').enumerate() {
            if index > 0 {
                out.push(' ');
            }
            out.push_str(&called(word));
        }
    }
    out
}

/// A word, with the name of a function or a page in it in bold.
fn called(word: &str) -> String {
    let is_name = |it: char| it.is_ascii_alphanumeric() || "_.-".contains(it);
    let ends = ["()", "(1)", "(3)", "(7)"];
    let Some(end) = ends.iter().find_map(|it| word.find(it)) else {
        return escape(word);
    };
    let (before, after) = word.split_at(end);
    let name = before.trim_start_matches(|it: char| !is_name(it));
    if name.is_empty() || !name.chars().all(is_name) {
        return escape(word);
    }
    let before = &before[..before.len() - name.len()];
    format!("{}\\fB{}\\fR{}", escape(before), code(name), escape(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_means_nothing_to_roff() {
        for (text, source) in [
            ("a-b -EPERM", "a-b \\-EPERM"),
            ("C:\\x 'y'", "C:\\ex \\*(Aqy\\*(Aq"),
            ("see `--link udp`.", "see \\fB\\-\\-link udp\\fR."),
            ("(portolan_open())", "(\\fBportolan_open\\fR())"),
            ("portolan-run(1), f(x)", "\\fBportolan\\-run\\fR(1), f(x)"),
        ] {
            assert_eq!(marked(text), source, "{text}");
        }
        let mut page = Page::new("x", 3, "2026-01-01");
        page.paragraph(".so is no control line");
        page.code("'nor is this");
        let source = page.finish();
        assert!(source.contains("\n\\&.so is"), "{source}");
        assert!(source.contains("\n\\*(Aqnor"), "{source}");
    }

    #[test]
    fn lines_are_short_and_headings_have_no_paragraph_below() {
        let mut page = Page::new("x", 3, "2026-01-01");
        page.heading("NAME");
        page.paragraph(&"word ".repeat(100));
        page.paragraph("next");
        let source = page.finish();
        assert!(source.lines().all(|line| line.len() <= 80), "{source}");
        assert!(source.contains(".SH \"NAME\"\nword"), "{source}");
        assert!(source.contains("\n.PP\nnext"), "{source}");
    }
}
