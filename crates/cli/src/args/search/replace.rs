//! The command lines of `quack replace` and `quack undo`.

use super::{CallArgs, FilesArgs, MatchArgs, by_name};
use clap::Args;

/// Replaces what matches in files, in a session's worker, at once; `quack undo` takes it back.
///
/// Every file is replaced as a whole or not at all. Line ends, marks of encodings and everything outside of the
/// matches stay. If a limit or an --expect does not hold, nothing is written.
#[derive(Debug, Args)]
#[command(
    mut_args(by_name),
    override_usage = "quack replace [OPTIONS] <PATTERN> <REPLACEMENT> [PATH]...\n       quack replace [OPTIONS] --plan <ID>",
    after_help = "Examples:\n  quack replace --dry-run 'colou?r' tint src\n  \
    quack replace -w old_name new_name -t rust\n  \
    quack replace '(\\w+)@(\\w+)' '${2} at ${1}' README.md\n  \
    quack replace -F 'a.b()' 'a.c()' --expect-replacements 3\n  \
    quack replace --dry-run x y | git apply\n  quack replace --plan ID      what a dry run has shown\n\n\
    With --dry-run the output is a patch whose paths begin at the workspace; nothing is written. \
    --json prints one document.\n\n\
    Exit codes: 0 replaced (or would be), 1 nothing matches, a limit or --expect does not hold, or not all could be \
    written, 2 usage, bad pattern or a missing path (nothing is changed then), 3 no daemon, 4 busy or deadline."
)]
pub(crate) struct ReplaceArgs {
    /// PATTERN, a regular expression; REPLACEMENT, in which `$1` and `${name}` are groups; then files and
    /// directories, the current directory if absent
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Show a patch and write nothing
    #[arg(short = 'n', long, conflicts_with = "plan")]
    pub(crate) dry_run: bool,
    /// Write what a dry run has shown; files that changed since are left out
    #[arg(long, value_name = "ID", conflicts_with_all = ["words", "globs", "types", "types_not"])]
    pub(crate) plan: Option<String>,
    /// `$1` in the replacement is just text
    #[arg(long)]
    pub(crate) no_template: bool,
    /// Only lines from A to B, of a single file; A: or :B leaves one end open
    #[arg(long, value_name = "A:B", value_parser = line_range)]
    pub(crate) line_range: Option<(u64, u64)>,
    /// Most replacements in each file
    #[arg(short = 'm', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_count: Option<u64>,
    /// If more files would change nothing is written
    #[arg(long, value_name = "N")]
    pub(crate) max_files: Option<u64>,
    /// If there would be more replacements nothing is written
    #[arg(long, value_name = "N")]
    pub(crate) max_replacements: Option<u64>,
    /// Unless so many files would change nothing is written
    #[arg(long, value_name = "N")]
    pub(crate) expect_files: Option<u64>,
    /// Unless so many lines would change nothing is written
    #[arg(long, value_name = "N")]
    pub(crate) expect_lines: Option<u64>,
    /// Unless there would be so many replacements nothing is written
    #[arg(long, value_name = "N")]
    pub(crate) expect_replacements: Option<u64>,
    /// Keep nothing to undo it with
    #[arg(long)]
    pub(crate) no_backup: bool,
    #[command(flatten)]
    pub(crate) matching: MatchArgs,
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    #[command(flatten)]
    pub(crate) call: CallArgs,
}

/// Takes back a replacement: files that nobody changed since get their old content.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack undo\n  quack undo --list\n  quack undo ID --json\n\n\
    Exit codes: 0 all is as before, 1 there is nothing to undo, or a file was left out because it changed since.")]
pub(crate) struct UndoArgs {
    /// What `quack replace` has said; the last replacement of the session if absent
    #[arg(value_name = "ID", allow_hyphen_values = true, value_parser = undo_id)]
    pub(crate) id: Option<String>,
    /// Show what can be undone
    #[arg(long, conflicts_with = "id")]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) call: CallArgs,
}

/// An id may be anything but nothing: `quack undo "$id"` without an id must not undo the last one.
fn undo_id(text: &str) -> Result<String, String> {
    let is_empty = text.trim().is_empty();
    if is_empty { Err("the id is empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// `A:B`, `A:` or `:B`, counted from 1, both included.
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
