//! The command line of `quack grep`.

use super::{CallArgs, FilesArgs, MatchArgs, by_name};
use clap::{ArgAction, Args, ValueEnum};

/// Most lines of context, of each side.
const MAX_CONTEXT: i64 = 200;

/// Searches the content of files, in a session's worker.
///
/// Leaves out what .gitignore and .ignore name, hidden files and binary files. On a terminal matches stand
/// below their file; in a pipe each line is `path:line:text`. Paths are relative to the current directory.
#[derive(Debug, Args)]
#[command(
    mut_args(by_name),
    override_usage = "quack grep [OPTIONS] <PATTERN> [PATH]...\n       quack grep [OPTIONS] -e <PATTERN>... [PATH]...",
    after_help = "Examples:\n  quack grep 'fn main'\n  \
    quack grep -iw todo src -g '*.rs' -g '!*_test.rs'\n  \
    quack grep -F 'a[0]' --context 2 -C ~/src/app\n  quack grep -l -t py import\n  \
    quack grep -c -e needle -e thread\n  quack grep --json TODO | jq -r 'select(.type==\"match\").text'\n\n\
    -C is the directory, as in every verb; lines of context are --context, -A and -B. \
    --json prints a line for each file, count, match, line of context and named binary file that matches, and a last \
    one of the type summary.\n\n\
    Exit codes: 0 something matches, 1 nothing does, 2 usage, bad pattern, a missing path (the others are searched), or \
    it failed, 3 no daemon, 4 busy or deadline (what was found until then is printed)."
)]
pub(crate) struct GrepArgs {
    /// PATTERN, a regular expression (not with -e), then files and directories; the current directory if absent
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// A pattern, also one that begins with `-`; may be given several times, then any of them
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
    /// Lines that do not match
    #[arg(help_heading = "Search options", short = 'v', long)]
    pub(crate) invert_match: bool,
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    /// Binary files too, as if they were text
    #[arg(help_heading = "Search options", short = 'a', long)]
    pub(crate) text: bool,
    /// What files are written in, such as latin1; `none` looks at bytes; by their marks if absent
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
    pub(crate) shape: ShapeArgs,
    /// Most matching lines of each file; 0: nothing is searched
    #[arg(help_heading = "Search options", short = 'm', long, value_name = "N")]
    pub(crate) max_count: Option<u64>,
    /// Most lines, or names, altogether
    #[arg(help_heading = "Output options", long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// By path, or the files that changed last first
    #[arg(help_heading = "Output options", long, value_name = "KEY", default_value = "path")]
    pub(crate) sort: GrepSort,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
    /// What grep needs and this verb does anyway: -r, -R and -E
    #[arg(short = 'r', short_aliases = ['R', 'E'], hide = true, action = ArgAction::Count)]
    pub(crate) _as_grep: u8,
    #[command(flatten)]
    pub(crate) call: CallArgs,
}

/// What of the matches is printed.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
#[command(next_help_heading = "Output modes")]
pub(crate) struct ShapeArgs {
    /// Only the names of files that match
    #[arg(short = 'l', long)]
    pub(crate) files_with_matches: bool,
    /// Only the names of files that do not match
    #[arg(short = 'L', long)]
    pub(crate) files_without_match: bool,
    /// How many lines match, for each file
    #[arg(short = 'c', long)]
    pub(crate) count: bool,
    /// How many matches there are, for each file
    #[arg(long)]
    pub(crate) count_matches: bool,
    /// Only what matches, each on a line of its own
    #[arg(short = 'o', long)]
    pub(crate) only_matching: bool,
    /// Nothing; the exit code says whether something matches
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// How matches are printed.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Output options")]
pub(crate) struct LayoutArgs {
    /// Most characters of a line, at least 40; of a longer one those around its first match; 0: all
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) max_line: Option<u64>,
    /// With line numbers, as it is if nothing is said
    #[arg(short = 'n', long, overrides_with = "no_line_number")]
    pub(crate) line_number: bool,
    /// Without line numbers
    #[arg(short = 'N', long, overrides_with = "line_number")]
    pub(crate) no_line_number: bool,
    /// With the number of the first matching byte of the line, from 1
    #[arg(long)]
    pub(crate) column: bool,
    /// Each file's name once, above its lines; so on a terminal
    #[arg(long, overrides_with = "no_heading")]
    pub(crate) heading: bool,
    /// Each file's name on each of its lines; so in a pipe
    #[arg(long, overrides_with = "heading")]
    pub(crate) no_heading: bool,
    /// With names of files, also for a single one
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    pub(crate) with_filename: bool,
    /// Without names of files
    #[arg(short = 'I', long, overrides_with = "with_filename")]
    pub(crate) no_filename: bool,
    /// A NUL after each name of a file
    #[arg(short = '0', long)]
    pub(crate) null: bool,
}

/// The values of `--sort` of `quack grep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GrepSort {
    Path,
    Modified,
    None,
}

fn context() -> clap::builder::RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(0..=MAX_CONTEXT)
}
