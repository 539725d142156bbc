//! The EXAMPLES of the commands' pages. A test reads each command line as
//! `portolan` would.

/// Of each page `# NAME`, then sentences, below each the command lines that do
/// what it says, indented.
const TEXT: &str = include_str!("examples.txt");

/// A sentence, and its command lines.
pub type Example = (&'static str, Vec<&'static str>);

/// Those of a page, by its name; none for an unknown one.
pub fn examples(page: &str) -> Vec<Example> {
    let found = pages().find(|(name, _)| *name == page);
    found.map_or(Vec::new(), |(_, examples)| examples)
}

fn pages() -> impl Iterator<Item = (&'static str, Vec<Example>)> {
    let page = |text: &'static str| {
        let mut parts = text.trim_end().split("\n\n");
        let name = parts.next().unwrap_or_default();
        let example = |part: &'static str| {
            let mut lines = part.lines().map(str::trim_start);
            Some((lines.next()?, lines.collect()))
        };
        (name, parts.filter_map(example).collect())
    };
    TEXT.split("# ").skip(1).map(page)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::*;
    use crate::command_line::read;

    /// The words that `portolan` is given, of a line that calls it.
    fn words(line: &str) -> Option<Vec<OsString>> {
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let line = line.split(" > ").next().unwrap_or_default();
        line.starts_with("portolan ")
            .then(|| line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn each_command_line_is_right() {
        for (page, examples) in pages() {
            for line in examples.iter().flat_map(|(_, lines)| lines) {
                let Some(words) = words(line) else { continue };
                let mut command = crate::Arguments::command();
                if let Err(answer) = read::<crate::Arguments>(&mut command, &words) {
                    panic!("{page}: {line}: {answer:?}");
                }
            }
        }
    }

    #[test]
    fn each_page_is_of_a_command_and_shows_it() {
        for (page, examples) in pages() {
            let pages = pages_of(&crate::Arguments::command(), "portolan");
            let (_, words) = pages.iter().find(|(name, _)| *name == page).expect(page);
            // `job` names its job before the change.
            let shown = words.strip_suffix(" exclude").unwrap_or(words);
            let lines: String = examples
                .iter()
                .flat_map(|(_, lines)| lines.clone())
                .collect();
            assert!(lines.contains(shown), "{page}: {lines}");
        }
    }

    #[test]
    fn each_command_has_examples() {
        for (page, _) in pages_of(&crate::Arguments::command(), "portolan") {
            assert!(!examples(&page).is_empty(), "{page}");
        }
    }

    /// The page of a command and those of all below it that are not hidden, with
    /// the words that call them.
    fn pages_of(command: &clap::Command, page: &str) -> Vec<(String, String)> {
        fn add(
            command: &clap::Command,
            page: String,
            words: String,
            to: &mut Vec<(String, String)>,
        ) {
            for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
                let name = below.get_name();
                add(
                    below,
                    format!("{page}-{name}"),
                    format!("{words} {name}"),
                    to,
                );
            }
            to.push((page, words));
        }
        let mut pages = Vec::new();
        add(command, page.to_owned(), page.to_owned(), &mut pages);
        pages
    }
}
