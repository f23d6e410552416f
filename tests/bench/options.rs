//! Command-line options after cargo's `--`.

use anyhow::bail;

/// Parsed by [`Options::read`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    words: Vec<String>,
    pub(crate) quick: bool,
    pub(crate) output: Output,
}

/// Output format of the results.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Table,
    Json,
}

impl Options {
    /// Parses words, `--quick` (fewer rounds) and `--json`. A group is selected if its name contains one of
    /// the words; without words, all groups are. `cargo bench` adds `--bench`. `cargo test --all-targets`
    /// does not, and only checks that everything still works.
    pub(crate) fn read(args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self { words: Vec::new(), quick: false, output: Output::Table };
        let mut is_bench = false;
        for arg in args {
            match arg.as_str() {
                "--bench" => is_bench = true,
                "--quick" => options.quick = true,
                "--json" => options.output = Output::Json,
                _ if arg.starts_with('-') => {
                    bail!("unknown option `{arg}`; usage: [WORD…] [--quick] [--json]")
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
