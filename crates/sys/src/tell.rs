//! Lines for people on standard error, and text of others that goes into them.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

/// Writes `line` and its end in one call: ranks under one launcher may share
/// standard error, and lines that are written piece by piece mix. What would
/// steer a terminal is escaped: parts of a line may come from other processes.
pub fn tell(line: fmt::Arguments<'_>) {
    let line = format!("{line}\n");
    let line = escaped(&line, |c| c == '\n');
    // Nobody is left to hear that standard error is closed.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// `text` with all that would steer a terminal escaped, ends of lines too.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let steers = |c: char| (c.is_control() || turns(c)) && !keep(c);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) {
            let _ = write!(out, "{}", c.escape_debug());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a character changes the direction that others are shown in.
const fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        assert_eq!(plain("h0, höst \\ \"x\""), "h0, höst \\ \"x\"");
        assert_eq!(
            plain("\x1b[2Ja\nb\r\t\u{9b}31m\u{7f}"),
            r"\u{1b}[2Ja\nb\r\t\u{9b}31m\u{7f}"
        );
        assert_eq!(plain("a\u{202e}b\u{2066}"), r"a\u{202e}b\u{2066}");
        assert_eq!(escaped("a\nb\r", |c| c == '\n'), "a\nb\\r");
    }
}
