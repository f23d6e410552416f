//! `quack config`: what the configuration is and where it comes from. Needs no daemon: a daemon that does
//! not start because of it is when one asks.

use crate::args::program::{ConfigArgs, ConfigShowArgs, ConfigVerb};
use crate::display::plain;
use crate::exit::Exit;
use crate::output::{DIM, Output};
use quackd_config::{Entry, load_blocking, locate};
use quackd_home::Home;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::PathBuf;

/// Widest line that the column of origins stands to the right of.
const MAX_COLUMN: usize = 56;

/// Runs the verb.
pub(crate) fn run(args: &ConfigArgs, output: Output) -> anyhow::Result<Exit> {
    let (path, is_named) = locate(Home::from_process_env_blocking()?.config(), &variable)?;
    match &args.verb {
        ConfigVerb::Path(_) => show_path(path, is_named, output),
        ConfigVerb::Show(args) => {
            let entries = load_blocking(&path, is_named, &variable)?.entries();
            show(&entries, args, output)
        }
    }
}

/// A variable of this process. One that is not text becomes text that no setting accepts.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn show_path(path: PathBuf, is_named: bool, output: Output) -> anyhow::Result<Exit> {
    let exists = path.exists();
    if output.is_json() {
        output.document(&json!({"path": path, "exists": exists, "named": is_named}))?;
        return Ok(Exit::Ok);
    }
    output.text(&format!("{}\n", path.display()))?;
    if !exists {
        output.note("there is no such file");
    }
    Ok(Exit::Ok)
}

fn show(entries: &[Entry], args: &ConfigShowArgs, output: Output) -> anyhow::Result<Exit> {
    if output.is_json() {
        let document: Map<String, Value> = entries
            .iter()
            .map(|entry| {
                (entry.key.to_owned(), json!({"value": entry.value, "origin": entry.origin}))
            })
            .collect();
        output.document(&document)?;
    } else {
        output.text(&render(entries, args.origin))?;
    }
    Ok(Exit::Ok)
}

/// The entries as a file that says the same, on request with a comment that says where each comes from.
fn render(entries: &[Entry], with_origin: bool) -> String {
    let lines: Vec<String> = entries.iter().map(|entry| plain(&entry.to_toml())).collect();
    let widths = lines.iter().map(|line| line.chars().count());
    let column = widths.filter(|width| *width <= MAX_COLUMN).max().unwrap_or_default();
    let mut text = String::new();
    for (line, entry) in lines.iter().zip(entries) {
        // Writing to a String cannot fail.
        let _never = if with_origin {
            writeln!(text, "{line:<column$}  {DIM}# {}{DIM:#}", plain(&entry.origin))
        } else {
            writeln!(text, "{line}")
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_of_toml_with_their_origins_in_a_column() {
        let entry = |key, value, origin: &str| Entry { key, value, origin: origin.to_owned() };
        let entries = [
            entry("a.b", json!(30), "default"),
            entry("a.long_name", json!(["x"]), "/home/ada/quackd.toml:7"),
            entry("z", json!("y".repeat(60)), "QUACKD_LOG"),
        ];
        assert_eq!(
            anstream::adapter::strip_str(&render(&entries, true)).to_string(),
            format!(
                "a.b = 30             # default\n\
                 a.long_name = [\"x\"]  # /home/ada/quackd.toml:7\n\
                 z = \"{}\"  # QUACKD_LOG\n",
                "y".repeat(60)
            )
        );
        let plain = render(&entries, false);
        assert!(plain.starts_with("a.b = 30\na.long_name = [\"x\"]\nz = "), "{plain}");
    }
}
