//! What the caller asked for, after cargo's `--`.

use anyhow::bail;

/// See [`Options::read`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    words: Vec<String>,
    pub(crate) quick: bool,
    pub(crate) output: Output,
}

/// How the figures are printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Table,
    Json,
}

impl Options {
    /// Reads words (a group is measured if its name contains one of them, every group without words),
    /// `--quick` (fewer rounds) and `--json`. `cargo bench` adds `--bench`; `cargo test --all-targets`
    /// does not, and then only wants to see that everything still works.
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

    /// Whether a group of this name is measured.
    pub(crate) fn wants(&self, group: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| group.contains(word.as_str()))
    }
}
