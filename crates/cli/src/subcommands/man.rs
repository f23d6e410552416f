//! `quack man`: prints the manual page, or writes the pages of all subcommands.

use crate::args::Cli;
use crate::args::program::ManArgs;
use crate::display::{count, full_path};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::reference;
use crate::user_file;
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde_json::json;
use std::path::Path;

/// Runs the subcommand.
pub(crate) fn run(args: &ManArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    match &args.dir {
        Some(dir) => write_blocking(dir, output),
        None => print(output),
    }
}

fn print(output: CliOutput) -> anyhow::Result<ExitCode> {
    let page = page(command())?;
    if output.is_json() {
        output.document(&json!({"page": page}))?;
    } else {
        output.answer(&page)?;
    }
    Ok(ExitCode::Ok)
}

fn write_blocking(dir: &Path, output: CliOutput) -> anyhow::Result<ExitCode> {
    let cannot = || format!("cannot write the pages into {}", dir.display());
    std::fs::create_dir_all(dir).with_context(cannot)?;

    let mut all = command();
    // Subcommands get their common options by this.
    all.build();
    let mut pages = Vec::new();
    collect("quack", &all, &mut pages)?;

    for (name, page) in &pages {
        user_file::write_blocking(&dir.join(name), page.as_bytes(), user_file::PUBLIC)
            .with_context(cannot)?;
    }

    let mut pages: Vec<String> = pages.into_iter().map(|(name, _)| name).collect();
    pages.sort();
    if output.is_json() {
        output.document(&json!({"directory": dir, "pages": pages}))?;
    } else {
        let pages = count(pages.len(), "page");
        output.text(&format!("Wrote {pages} to {}.\n", full_path(dir)))?;
    }
    Ok(ExitCode::Ok)
}

fn command() -> Command {
    Cli::command().disable_help_subcommand(true)
}

/// Returns one manual page.
fn page(command: Command) -> anyhow::Result<String> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(String::from_utf8(page)? + &reference::sections())
}

/// Collects the pages of a command and its subcommands. A file name is the words of the command joined with dashes.
fn collect(name: &str, command: &Command, pages: &mut Vec<(String, String)>) -> anyhow::Result<()> {
    pages.push((format!("{name}.1"), page(command.clone())?));
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        collect(&format!("{name}-{}", verb.get_name()), verb, pages)?;
    }
    Ok(())
}
