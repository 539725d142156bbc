//! The pages of section 1: a page for each command, from what `--help` says.

use clap::Command;
use clap_mangen::Man;

use super::examples::examples;
use super::roff::Page;
use super::{Files, Manual};
use portolan_hosts::failure::{Failure, Result};

/// How a paragraph begins that says what a command returns.
const EXIT: &str = "Exit code: ";

/// Adds the pages of a command and of all below it that are not hidden.
pub fn pages(manual: &Manual, command: Command, files: &mut Files) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let name = command.get_name().to_owned();
    add(manual, command, &name, &[], files)
}

fn add(
    manual: &Manual,
    command: Command,
    name: &str,
    above: &[String],
    files: &mut Files,
) -> Result<()> {
    let mut related = above.to_vec();
    let here: Vec<String> = above.iter().cloned().chain([name.to_owned()]).collect();
    for below in shown(&command) {
        let below_name = format!("{name}-{}", below.get_name());
        add(manual, below.clone(), &below_name, &here, files)?;
        related.push(below_name);
    }
    let text = page(manual, command, name, &related)?;
    files.add(name, 1, text);
    Ok(())
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set())
}

fn page(manual: &Manual, command: Command, name: &str, related: &[String]) -> Result<String> {
    let notes = command.get_after_help().map(ToString::to_string);
    let has_options = command.get_arguments().any(|it| !it.is_hide_set());
    let has_commands = shown(&command).next().is_some();
    let man = Man::new(command);
    let mut page = Page::new(name, 1, &manual.date);
    rendered(&mut page, |to| man.render_name_section(to))?;
    rendered(&mut page, |to| man.render_synopsis_section(to))?;
    rendered(&mut page, |to| man.render_description_section(to))?;
    if has_options {
        rendered(&mut page, |to| man.render_options_section(to))?;
    }
    if has_commands {
        rendered(&mut page, |to| man.render_subcommands_section(to))?;
    }
    say_notes(&mut page, notes.as_deref().unwrap_or_default());
    let examples = examples(name);
    if !examples.is_empty() {
        page.heading("EXAMPLES");
        for (text, lines) in examples {
            page.paragraph(text);
            page.code(&lines.join("\n"));
        }
    }
    page.heading("SEE ALSO");
    let mut pages: Vec<_> = related.iter().map(|it| format!("{it}(1)")).collect();
    pages.push("portolan(7)".to_owned());
    page.paragraph(&pages.join(", "));
    Ok(page.finish())
}

/// A section as `clap_mangen` has it, without what it begins each piece with,
/// and without blanks, empty lines and repeated breaks that readers complain of.
fn rendered(
    page: &mut Page,
    render: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>,
) -> Result<()> {
    let mut text = Vec::new();
    render(&mut text).map_err(Failure::io("rendering a page"))?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim_end);
    let lines = lines.filter(|it| !it.is_empty() && !it.contains(".ds Aq"));
    let mut kept: Vec<&str> = lines.collect();
    kept.dedup_by(|line, before| *line == ".br" && *before == ".br");
    page.raw(&format!("{}\n", kept.join("\n")));
    Ok(())
}

/// What stands below the options of `--help`, its exit codes apart.
fn say_notes(page: &mut Page, notes: &str) {
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs: Vec<String> = notes.split("\n\n").map(joined).collect();
    let of_exit = |it: &&String| it.starts_with(EXIT);
    let others: Vec<_> = paragraphs
        .iter()
        .filter(|it| !it.is_empty() && !of_exit(it))
        .collect();
    if !others.is_empty() {
        page.heading("NOTES");
    }
    for text in others {
        page.paragraph(text);
    }
    if let Some(codes) = paragraphs.iter().find(of_exit) {
        page.heading("EXIT STATUS");
        page.paragraph(codes);
    }
}
