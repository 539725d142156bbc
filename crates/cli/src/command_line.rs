//! Reads the command line, and says in one sentence what is wrong with it.

#[cfg(test)]
mod random;
#[cfg(test)]
pub mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::print;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error, FromArgMatches};

/// Other launchers' word for `-n`, which is read as one.
const OTHERS_RANKS: &str = "-np";

/// What a command line that starts nothing is answered by.
#[derive(Debug)]
pub enum Answer {
    /// It asks for help or the version, or for nothing at all.
    Help(Error),
    Wrong(Failure),
}

impl Answer {
    /// Shows the help; gives the exit code.
    ///
    /// # Errors
    /// The command line was wrong, or the help cannot be shown.
    pub fn give(self) -> Result<ExitCode> {
        match self {
            Self::Help(error) => {
                let shown = error.print();
                if !error.use_stderr() {
                    print::outcome(shown)?;
                }
                Ok(u8::try_from(error.exit_code()).unwrap_or(2).into())
            }
            Self::Wrong(failure) => Err(failure),
        }
    }
}

/// What `words` ask of `command`, whose name is the first of them.
///
/// # Errors
/// They start nothing.
pub fn read<T: FromArgMatches>(
    command: &mut Command,
    words: &[OsString],
) -> std::result::Result<T, Answer> {
    let mut found = command.try_get_matches_from_mut(words);
    if let Err(error) = &found
        && let Some(words) = in_our_words(error, words)
    {
        found = command.try_get_matches_from_mut(words);
    }
    let found = found.and_then(|matches| T::from_arg_matches(&matches));
    found.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match taken_for_help(words) {
            None => Answer::Help(error),
            Some(word) => {
                let said =
                    format!("unexpected argument '{word}' found; long options have two dashes");
                Answer::Wrong(with_help(command, words, &said))
            }
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Answer::Help(error),
        _ => Answer::Wrong(sentence(command, words, &error)),
    })
}

/// A word such as other launchers' `-hosts`, which reads as `-h -o -s -t -s`,
/// where nothing else asks for help.
fn taken_for_help(words: &[OsString]) -> Option<&str> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let asks = |word: &&str| ["-h", "--help", "-V", "--version", "help"].contains(word);
    if words.iter().any(asks) {
        return None;
    }
    let like = |word: &&str| word.starts_with("-h") || word.starts_with("-V");
    words.into_iter().find(like)
}

/// The words with `-n` for a `-np`, where that was taken for `-n p`.
fn in_our_words(error: &Error, words: &[OsString]) -> Option<Vec<OsString>> {
    let value = error.get(ContextKind::InvalidValue);
    if !matches!(value, Some(ContextValue::String(value)) if value == "p") {
        return None;
    }
    let at = words.iter().position(|word| word == OTHERS_RANKS)?;
    let mut ours = words.to_vec();
    ours[at] = "-n".into();
    Some(ours)
}

/// What is wrong, what was meant perhaps, and where more is told.
fn sentence(command: &Command, words: &[OsString], error: &Error) -> Failure {
    let text = error.render().to_string();
    let parts: Vec<String> = text
        .split("\n\n")
        .flat_map(|part| part.split("  tip: "))
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        // An option that we do not know is hardly meant as the program's name.
        .filter(|part| !part.is_empty() && !part.starts_with("to pass '"))
        .take_while(|part| !part.starts_with("Usage:") && !part.starts_with("For more info"))
        .collect();
    let mut said = parts.join("; ");
    // What the parser of numbers says is no advice.
    for unclear in [
        "invalid digit found in string",
        "cannot parse integer from empty string",
    ] {
        said = said.replace(unclear, "give a whole number that is not negative");
    }
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    with_help(command, words, said)
}

/// What is wrong, and where more is told.
fn with_help(command: &Command, words: &[OsString], said: &str) -> Failure {
    let mut asked = command.get_name().to_owned();
    let mut below = command;
    for word in words.iter().skip(1) {
        let Some(next) = below.find_subcommand(word) else {
            break;
        };
        below = next;
        asked = format!("{asked} {}", next.get_name());
    }
    Failure::usage(format!("{said}; `{asked} --help` tells more"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match read::<crate::Arguments>(&mut crate::Arguments::command(), &words) {
            Err(Answer::Wrong(failure)) => failure.to_string(),
            Err(Answer::Help(error)) => error.to_string(),
            Ok(_) => "is right".to_owned(),
        }
    }

    #[test]
    fn the_nearest_right_word_is_named() {
        for (line, parts) in [
            (
                "portolan run -n 2 --host a,b -- ./x",
                &["'--host'", "'--hosts'", "`portolan run --help`"][..],
            ),
            (
                "portolan run -n 2 --link upd ./x",
                &["'upd'", "auto, shm, udp, xdp"],
            ),
            (
                "portolan lap list",
                &["'lap'", "'lab'", "`portolan --help`"],
            ),
            ("portolan lab up", &["NAME", "`portolan lab up --help`"]),
            (
                "portolan run -n 2 -hosts a,b ./x",
                &["'-hosts'", "two dashes", "`portolan run --help`"],
            ),
            ("portolan run -n p ./x", &["'p'", "`portolan run --help`"]),
            ("portolan run -n -3 ./x", &["'-3'", "not negative"]),
            (
                "portolan run --mpi openmpi --oversubscribe ./x",
                &["'--oversubscribe' found; `portolan run --help`"],
            ),
            (
                "portolan run -n 2 --timeout 0.5 ./x",
                &["'0.5'", "--timeout <SECONDS>", "give a whole number"],
            ),
            (
                "portolan top --interval= x",
                &["--interval", "`portolan top --help`"],
            ),
        ] {
            let said = said(line);
            for part in parts {
                assert!(said.contains(part), "{line}: no {part} in: {said}");
            }
            assert!(!said.contains('\n') && !said.contains("Usage"), "{said}");
        }
    }

    #[test]
    fn help_is_shown_to_who_asks() {
        for line in [
            "portolan",
            "portolan run -h",
            "portolan run --help ./x -hosts a",
            "portolan help run",
            "portolan lab",
            "portolan --version",
        ] {
            assert!(said(line).contains("portolan"), "{line}");
            assert!(!said(line).contains("tells more"), "{line}");
        }
    }

    #[test]
    fn other_launchers_word_for_ranks_is_understood() {
        for line in [
            "portolan run -np 2 ./x",
            "portolan run --np 2 ./x",
            "portolan run --verbose -np 2 -- ./x -np 3",
            "portolan run -n 2 ./x -np three --host a",
        ] {
            assert_eq!(said(line), "is right", "{line}");
        }
        assert!(said("portolan run -np two ./x").contains("'two'"));
    }
}
