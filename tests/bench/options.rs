//! Command-line options after cargo's `--`.

use anyhow::{Context, bail};
use std::path::PathBuf;

/// Parsed by [`Options::read`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    words: Vec<String>,
    pub(crate) quick: bool,
    pub(crate) output: Output,
    /// File of the plot.
    pub(crate) svg: Option<PathBuf>,
}

/// Output format of the results.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Table,
    Json,
}

impl Options {
    /// Parses words, `--quick` (fewer rounds), `--json` and `--svg FILE` (the plot). A group is selected if its name contains one of
    /// the words; without words, all groups are. `cargo bench` adds `--bench`. `cargo test --all-targets`
    /// does not, and only checks that everything still works.
    pub(crate) fn read(mut args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options =
            Self { words: Vec::new(), quick: false, output: Output::Table, svg: None };
        let mut is_bench = false;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => is_bench = true,
                "--quick" => options.quick = true,
                "--json" => options.output = Output::Json,
                "--svg" => {
                    let file = args.next().context("`--svg` needs the name of a file")?;
                    options.svg = Some(PathBuf::from(file));
                }
                _ if arg.starts_with('-') => {
                    bail!("unknown option `{arg}`; usage: [WORD…] [--quick] [--json] [--svg FILE]")
                }
                _ => options.words.push(arg),
            }
        }
        options.quick |= !is_bench;
        Ok(options)
    }

    /// Returns true if a group with this name is selected.
    pub(crate) fn wants(&self, group: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| group.contains(word.as_str()))
    }
}
