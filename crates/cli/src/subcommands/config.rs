//! `quack config`: prints the configuration and its origin, and changes it. Needs no daemon, because a bad configuration
//! may keep the daemon from starting.

mod change;

use self::change::ConfigFile;
use crate::args::program::{ConfigArgs, ConfigShowArgs, ConfigVerb};
use crate::display::{full_path, plain};
use crate::exit::ExitCode;
use crate::output::{CliOutput, DIM};
use quackd_config::{Entry, locate};
use quackd_home::Home;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

/// Maximum line width, in columns, for which origins are aligned.
const MAX_COLUMN: usize = 56;

/// Runs the subcommand.
pub(crate) fn run(args: &ConfigArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    let (path, is_named) = locate(home.config_blocking(), &variable)?;

    match &args.verb {
        ConfigVerb::Path(_) => show_path(&path, is_named, output),
        ConfigVerb::Set(args) => ConfigFile { path, home }.set(&args.key, &args.value, output),
        ConfigVerb::Unset(args) => ConfigFile { path, home }.unset(&args.key, output),
        ConfigVerb::Edit(_) => ConfigFile { path, home }.edit(output),
        ConfigVerb::Show(args) => {
            let (config, file) = quackd_supervisor::read_config(&home)?;
            if let Some(held) = &file.held {
                let path = full_path(&path);
                output.note(&format!("{path} {held}: its keys that allow more are not in force"));
            }
            show(&config.entries(), args, output)
        }
    }
}

/// Sets a key in the file, as `quack config set` does, without a report.
///
/// # Errors
/// As `quack config set`.
pub(crate) fn set_blocking(key: &str, text: &str) -> anyhow::Result<()> {
    let home = Home::from_process_env_blocking()?;
    let (path, _) = locate(home.config_blocking(), &variable)?;
    ConfigFile { path, home }.put_blocking(key, text)
}

/// Returns an environment variable. Invalid UTF-8 becomes text that every setting rejects.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn show_path(path: &Path, is_named: bool, output: CliOutput) -> anyhow::Result<ExitCode> {
    let exists = path.exists();
    let document = json!({"path": path, "exists": exists, "named": is_named});
    output.show(&document, || format!("{}\n", path.display()))?;
    if !exists {
        output.note("the file does not exist");
    }
    Ok(ExitCode::Ok)
}

fn show(entries: &[Entry], args: &ConfigShowArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let row = |entry: &Entry| {
        (entry.key.to_string(), json!({"value": entry.value, "origin": entry.origin}))
    };
    let document: Map<String, Value> = entries.iter().map(row).collect();
    output.show(&document, || render(entries, args.origin))?;
    Ok(ExitCode::Ok)
}

/// Formats the entries as a configuration file, optionally with a comment that names the origin.
fn render(entries: &[Entry], with_origin: bool) -> String {
    let lines: Vec<String> = entries.iter().map(|entry| plain(&entry.to_toml())).collect();
    let widths = lines.iter().map(|line| line.chars().count());
    let column = widths.filter(|width| *width <= MAX_COLUMN).max().unwrap_or_default();

    let mut text = String::new();
    for (line, entry) in lines.iter().zip(entries) {
        let written = if with_origin {
            writeln!(text, "{line:<column$}  {DIM}# {}{DIM:#}", plain(&entry.origin))
        } else {
            writeln!(text, "{line}")
        };
        // Writing to a String cannot fail.
        written.ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_of_toml_with_their_origins_in_a_column() {
        let entry = |key: &'static str, value, origin: &str| Entry {
            key: key.into(),
            value,
            origin: origin.to_owned(),
        };
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
