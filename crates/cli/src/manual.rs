//! Man pages and completions, from the same source as `--help`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::print::print;

/// Of `portolan man`.
#[derive(clap::Args)]
pub struct ManArguments {
    /// Directory for the pages; it is created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Of `portolan completions`.
#[derive(clap::Args)]
pub struct CompletionArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes a page for the command and for each of its commands that are not
/// hidden: `portolan.1`, `portolan-run.1`, ...
pub fn pages(command: Command, arguments: &ManArguments) -> Result<ExitCode> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory)
        .map_err(Failure::io(format!("making {}", directory.display())))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let name = command.get_name().to_owned();
    page(command, &name, directory)?;
    Ok(ExitCode::SUCCESS)
}

fn page(command: Command, name: &str, directory: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        page(
            below.clone(),
            &format!("{name}-{}", below.get_name()),
            directory,
        )?;
    }
    let file = directory.join(format!("{name}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut text)
        .and_then(|()| fs::write(&file, text))
        .map_err(Failure::io(format!("writing {}", file.display())))
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
