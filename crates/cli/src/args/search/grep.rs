//! Arguments of `quack grep`.

use super::{FilesArgs, MatchArgs, ToolCallArgs, by_name};
use clap::{ArgAction, Args, ValueEnum};

/// Maximum number of context lines on each side.
const MAX_CONTEXT: i64 = 200;

/// Search the content of files
///
/// Runs in a session's worker. Skips files listed in .gitignore and .ignore, hidden files and binary files. On a
/// terminal, matches are grouped by file. In a pipe each line is `path:line:text`. Paths are relative to the current
/// directory.
#[derive(Debug, Args)]
#[command(
    mut_args(by_name),
    override_usage = "quack grep [OPTIONS] <PATTERN> [PATH]...\n       quack grep [OPTIONS] -e <PATTERN>... [PATH]...",
    after_help = "Examples:\n  quack grep 'fn main'\n  \
    quack grep -iw todo src -g '*.rs' -g '!*_test.rs'\n  \
    quack grep -F 'a[0]' --context 2 -C ~/src/app\n  quack grep -l -t py import\n  \
    quack grep -c -e needle -e thread\n  quack grep --json TODO | jq -r 'select(.type==\"match\").text'\n\n\
    -C is the directory, as in every subcommand; use --context, -A and -B for context lines. \
    --json prints one line for each file, count, match, context line and named binary file that matches, and a final \
    line of type summary.\n\n\
    Exit codes: 0 something matches, 1 nothing does, 2 usage, bad pattern, a missing path (the others are searched), or \
    a failure, 3 no daemon, 4 busy or deadline (what was found until then is printed)."
)]
pub(crate) struct GrepArgs {
    /// PATTERN, a regular expression (not with -e), then files and directories [default: the current directory]
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Pattern, even with a leading `-`; repeatable, any of them matches
    #[arg(
        help_heading = "Search options",
        short = 'e',
        long = "regexp",
        value_name = "PATTERN",
        allow_hyphen_values = true
    )]
    pub(crate) patterns: Vec<String>,
    #[command(flatten)]
    pub(crate) matching: MatchArgs,
    /// Print lines that do not match
    #[arg(help_heading = "Search options", short = 'v', long)]
    pub(crate) invert_match: bool,
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    /// Search binary files as text
    #[arg(help_heading = "Search options", short = 'a', long)]
    pub(crate) text: bool,
    /// Encoding of the files, such as latin1; `none` searches bytes [default: by byte order mark]
    #[arg(help_heading = "Search options", long, value_name = "LABEL")]
    pub(crate) encoding: Option<String>,
    /// Follow symbolic links that stay in the workspace
    #[arg(help_heading = "Filter options", long)]
    pub(crate) follow: bool,
    /// Lines of context after each match
    #[arg(help_heading = "Output options", short = 'A', long, value_name = "N", value_parser = context())]
    pub(crate) after_context: Option<i64>,
    /// Lines of context before each match
    #[arg(help_heading = "Output options", short = 'B', long, value_name = "N", value_parser = context())]
    pub(crate) before_context: Option<i64>,
    /// Lines of context on both sides
    #[arg(help_heading = "Output options", long, value_name = "N", value_parser = context())]
    pub(crate) context: Option<i64>,
    #[command(flatten)]
    pub(crate) shape: GrepOutputArgs,
    /// Maximum number of matching lines per file; 0 searches nothing
    #[arg(help_heading = "Search options", short = 'm', long, value_name = "N")]
    pub(crate) max_count: Option<u64>,
    /// Maximum number of lines or names
    #[arg(help_heading = "Output options", long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Sort files by path or by last change
    #[arg(help_heading = "Output options", long, value_name = "KEY", default_value = "path")]
    pub(crate) sort: GrepSort,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
    /// Options of grep that are the default here: -r, -R and -E
    #[arg(short = 'r', short_aliases = ['R', 'E'], hide = true, action = ArgAction::Count)]
    pub(crate) _as_grep: u8,
    #[command(flatten)]
    pub(crate) call: ToolCallArgs,
}

/// Selects the printed part of the matches.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
#[command(next_help_heading = "Output modes")]
pub(crate) struct GrepOutputArgs {
    /// Print only the names of files that match
    #[arg(short = 'l', long)]
    pub(crate) files_with_matches: bool,
    /// Print only the names of files that do not match
    #[arg(short = 'L', long)]
    pub(crate) files_without_match: bool,
    /// Print the number of matching lines per file
    #[arg(short = 'c', long)]
    pub(crate) count: bool,
    /// Print the number of matches per file
    #[arg(long)]
    pub(crate) count_matches: bool,
    /// Print only the matches, one per line
    #[arg(short = 'o', long)]
    pub(crate) only_matching: bool,
    /// Print nothing; use the exit code
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// Format of the matches.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Output options")]
pub(crate) struct LayoutArgs {
    /// Maximum length of a line in characters, at least 40; longer lines are cut around the match; 0 is unlimited
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) max_line: Option<u64>,
    /// Print line numbers (default)
    #[arg(short = 'n', long, overrides_with = "no_line_number")]
    pub(crate) line_number: bool,
    /// Omit line numbers
    #[arg(short = 'N', long, overrides_with = "line_number")]
    pub(crate) no_line_number: bool,
    /// Print the position of the first matching byte, from 1
    #[arg(long)]
    pub(crate) column: bool,
    /// Print each file name once, above its lines [default on a terminal]
    #[arg(long, overrides_with = "no_heading")]
    pub(crate) heading: bool,
    /// Print the file name on each line [default in a pipe]
    #[arg(long, overrides_with = "heading")]
    pub(crate) no_heading: bool,
    /// Print file names, even for a single file
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    pub(crate) with_filename: bool,
    /// Omit file names
    #[arg(short = 'I', long, overrides_with = "with_filename")]
    pub(crate) no_filename: bool,
    /// End each file name with NUL
    #[arg(short = '0', long)]
    pub(crate) null: bool,
}

/// Values of `--sort` of `quack grep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GrepSort {
    Path,
    Modified,
    None,
}

fn context() -> clap::builder::RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(0..=MAX_CONTEXT)
}
