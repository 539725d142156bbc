//! Man pages and completions: of commands from the same source as `--help`, of
//! calls from the C headers.

mod calls;
mod commands;
mod examples;
mod header;
mod roff;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Command;
use clap_complete::Shell;

use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::print::print;

/// Of `portolan man`.
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct ManArguments {
    /// Directory for the pages; it is created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

const NOTES: &str = "\
Pages of the commands (NAME.1), those of BSPlib too, of the calls in C (NAME.3) and of what
Portolan's words mean (portolan.7). They bear the date of today, or of SOURCE_DATE_EPOCH where that is set.";

/// Of `portolan completions`.
#[derive(clap::Args)]
pub struct CompletionArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// What all pages have in common.
struct Manual {
    /// As YYYY-MM-DD.
    date: String,
}

/// Pages that are to be written, by their file names.
#[derive(Default)]
struct Files(Vec<(String, String)>);

impl Files {
    fn add(&mut self, name: &str, section: u8, text: String) {
        self.0.push((format!("{name}.{section}"), text));
    }
}

/// Writes all pages: for the command and for each of its commands that are not
/// hidden (`portolan.1`, `portolan-run.1`, ...), for each call of the C headers
/// (`portolan_send.3`, ...), for the commands of BSPlib, and `portolan.7`.
pub fn pages(command: Command, arguments: &ManArguments) -> Result<ExitCode> {
    let manual = Manual { date: date()? };
    let directory = &arguments.directory;
    fs::create_dir_all(directory)
        .map_err(Failure::io(format!("making {}", directory.display())))?;
    let mut files = Files::default();
    commands::pages(&manual, command, &mut files)?;
    calls::pages(&manual, &mut files);
    let written = |text: &str| {
        text.replace("@DATE@", &manual.date)
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
    };
    files.add("portolan", 7, written(include_str!("manual/portolan.7")));
    files.add("bspcc", 1, written(include_str!("manual/bspcc.1")));
    files.add("bspcxx", 1, ".so man1/bspcc.1\n".to_owned());
    files.add("bsprun", 1, written(include_str!("manual/bsprun.1")));
    for (name, text) in &files.0 {
        let file = directory.join(name);
        fs::write(&file, text).map_err(Failure::io(format!("writing {}", file.display())))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The pages' date: today's, or that of SOURCE_DATE_EPOCH, so that who builds
/// packages gets the same each time.
fn date() -> Result<String> {
    const DAY: u64 = 24 * 60 * 60;
    /// The last of the year 9999.
    const SECONDS_MAX: u64 = 253_402_300_799;
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    let seconds = match std::env::var(VARIABLE) {
        Ok(text) => {
            let seconds = text.parse().ok().filter(|it| *it <= SECONDS_MAX);
            seconds.ok_or_else(|| {
                Failure::usage(format!(
                    "{VARIABLE} is {text:?}: give seconds since 1970, or unset it"
                ))
            })?
        }
        Err(_) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    let (year, month, day) = civil(seconds / DAY);
    Ok(format!("{year:04}-{month:02}-{day:02}"))
}

/// Year, month and day of a day, counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin with March here, and eras of 400 with that of the year 0: the
    // leap day is the last one of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (later, month) = if month < 10 {
        (0, month + 3)
    } else {
        (1, month - 9)
    };
    (400 * era + year + later, month, day - first + 1)
}

/// Prints what the shell reads.
pub fn completions(command: Command, arguments: &CompletionArguments) -> Result<ExitCode> {
    let name = "portolan";
    // Nobody is to complete a hidden command.
    let mut shown = Command::new(name)
        .args(command.get_arguments())
        .subcommands(command.get_subcommands().filter(|it| !it.is_hide_set()));
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut shown, name, &mut text);
    print(String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_have_their_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_781, (2026, 11, 24)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
            (2_932_896, (9999, 12, 31)),
        ] {
            assert_eq!(civil(days), date);
        }
    }
}
