//! `quack tools`: lists the tools of a session.

use crate::args::tool::ToolsArgs;
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM};
use quackd_protocol::tools::{self, Offer};
use serde_json::json;

/// Runs the subcommand. Needs no daemon.
pub(crate) fn run(_: ToolsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let all = tools::all().map(|tool| {
        json!({ "name": tool.name, "about": tool.about, "main": tool.main, "readsOnly": tool.reads_only })
    });
    output.show(&json!({ "tools": all.collect::<Vec<_>>() }), text)?;
    Ok(ExitCode::Ok)
}

fn text() -> String {
    let width = tools::all().map(|tool| tool.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for tool in tools::all().filter(|tool| tool.offer != Offer::Ask) {
        let about = tool.about.split_inclusive(". ").next().unwrap_or_default().trim();
        text.push_str(&format!("{BOLD}{:width$}{BOLD:#}  {about}\n", tool.name));
    }

    let others: Vec<&str> =
        tools::all().filter(|tool| tool.offer == Offer::Ask).map(|tool| tool.name).collect();
    text.push_str(&format!(
        "\n{DIM}Other spellings and tools of agents: {}{DIM:#}\n`quack tool NAME --help` shows the arguments of one\n",
        others.join(", ")
    ));
    text
}
