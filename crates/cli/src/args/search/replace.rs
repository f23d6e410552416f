//! Arguments of `quack replace` and `quack undo`.

use super::{FilesArgs, MatchArgs, ToolCallArgs, by_name};
use clap::Args;

/// Replace matches in files; `quack undo` restores them
///
/// Runs in a session's worker. Each file is replaced atomically. Line ends, byte order marks and all text outside of
/// the matches stay. If a limit or an --expect option is violated, nothing is written.
#[derive(Debug, Args)]
#[command(
    mut_args(by_name),
    override_usage = "quack replace [OPTIONS] <PATTERN> <REPLACEMENT> [PATH]...\n       quack replace [OPTIONS] --plan <ID>",
    after_help = "Examples:\n  quack replace --dry-run 'colou?r' tint src\n  \
    quack replace -w old_name new_name -t rust\n  \
    quack replace '(\\w+)@(\\w+)' '${2} at ${1}' README.md\n  \
    quack replace -F 'a.b()' 'a.c()' --expect-replacements 3\n  \
    quack replace --dry-run x y | git apply\n  quack replace --plan ID      apply a dry run\n\n\
    With --dry-run the output is a patch whose paths begin at the workspace; nothing is written. \
    --json prints one document.\n\n\
    Exit codes: 0 replaced (or would be), 1 nothing matches, a limit or --expect is violated, or not all could be \
    written, 2 usage, bad pattern or a missing path (nothing is changed then), 3 no daemon, 4 busy or deadline."
)]
pub(crate) struct ReplaceArgs {
    /// PATTERN, a regular expression; REPLACEMENT, in which `$1` and `${name}` are groups; then files and directories
    /// [default: the current directory]
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Show a patch and write nothing
    #[arg(short = 'n', long, conflicts_with = "plan")]
    pub(crate) dry_run: bool,
    /// Apply the plan of a dry run; skip files that changed since
    #[arg(long, value_name = "ID", conflicts_with_all = ["words", "globs", "types", "types_not"])]
    pub(crate) plan: Option<String>,
    /// Treat `$1` in the replacement as text
    #[arg(long)]
    pub(crate) no_template: bool,
    /// Replace only in lines A to B of a single file; A: or :B leaves one end open
    #[arg(long, value_name = "A:B", value_parser = line_range)]
    pub(crate) line_range: Option<(u64, u64)>,
    /// Maximum number of replacements per file
    #[arg(short = 'm', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_count: Option<u64>,
    /// Write nothing if more than N files would change
    #[arg(long, value_name = "N")]
    pub(crate) max_files: Option<u64>,
    /// Write nothing if there would be more than N replacements
    #[arg(long, value_name = "N")]
    pub(crate) max_replacements: Option<u64>,
    /// Write nothing unless exactly N files would change
    #[arg(long, value_name = "N")]
    pub(crate) expect_files: Option<u64>,
    /// Write nothing unless exactly N lines would change
    #[arg(long, value_name = "N")]
    pub(crate) expect_lines: Option<u64>,
    /// Write nothing unless there would be exactly N replacements
    #[arg(long, value_name = "N")]
    pub(crate) expect_replacements: Option<u64>,
    /// Keep no undo data
    #[arg(long)]
    pub(crate) no_backup: bool,
    #[command(flatten)]
    pub(crate) matching: MatchArgs,
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    #[command(flatten)]
    pub(crate) call: ToolCallArgs,
}

/// Parses `A:B`, `A:` or `:B`. Lines count from 1, both ends are inclusive.
fn line_range(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str, open: u64| match text {
        "" => Some(open),
        text => text.parse::<u64>().ok().filter(|n| *n != 0),
    };
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    number(first, 1)
        .zip(number(last, u64::MAX))
        .filter(|(first, last)| !text.is_empty() && first <= last)
        .ok_or_else(|| "give lines from 1 on, such as 10:20, 10: or :20".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_1_and_either_end_may_be_open() {
        for (text, range) in [
            ("10:20", Some((10, 20))),
            ("10:", Some((10, u64::MAX))),
            (":20", Some((1, 20))),
            ("7", Some((7, 7))),
            ("0:3", None),
            ("4:3", None),
            ("", None),
            ("a:b", None),
        ] {
            assert_eq!(line_range(text).ok(), range, "{text}");
        }
    }
}
