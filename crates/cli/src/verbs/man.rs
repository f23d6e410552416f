//! `quack man`: the manual page, or the pages of all verbs as files.

use crate::args::Cli;
use crate::args::program::ManArgs;
use crate::display::{count, plain};
use crate::exit::Exit;
use crate::output::Output;
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde_json::json;
use std::path::Path;

/// Runs the verb.
pub(crate) fn run(args: &ManArgs, output: Output) -> anyhow::Result<Exit> {
    match &args.dir {
        Some(dir) => write_blocking(dir, output),
        None => print(output),
    }
}

fn print(output: Output) -> anyhow::Result<Exit> {
    let mut page = Vec::new();
    Man::new(command()).render(&mut page)?;
    let page = String::from_utf8(page)?;
    if output.is_json() {
        output.document(&json!({"page": page}))?;
    } else {
        output.answer(&page)?;
    }
    Ok(Exit::Ok)
}

fn write_blocking(dir: &Path, output: Output) -> anyhow::Result<Exit> {
    let cannot = || format!("cannot write the pages into {}", dir.display());
    std::fs::create_dir_all(dir).with_context(cannot)?;
    clap_mangen::generate_to(command(), dir).with_context(cannot)?;
    let mut pages = Vec::new();
    names("quack", &command(), &mut pages);
    pages.sort();
    if output.is_json() {
        output.document(&json!({"directory": dir, "pages": pages}))?;
    } else {
        let pages = count(pages.len(), "page");
        output.text(&format!("Wrote {pages} to {}.\n", plain(&dir.display().to_string())))?;
    }
    Ok(Exit::Ok)
}

fn command() -> Command {
    Cli::command().disable_help_subcommand(true)
}

/// The file names of the pages: a verb's page is called as its words with dashes.
fn names(name: &str, command: &Command, pages: &mut Vec<String>) {
    pages.push(format!("{name}.1"));
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        names(&format!("{name}-{}", verb.get_name()), verb, pages);
    }
}
