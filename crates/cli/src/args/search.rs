//! The command lines of `quack grep`, `find`, `replace`, `undo` and `schema`.
//!
//! Flags are called as in grep, ripgrep, fd and sd where those agree. `-C` is the directory, as in every
//! verb, so that lines of context have `--context` only.

use super::{WhichArgs, deadline};
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use std::time::Duration;

/// Most lines of context, of each side.
const MAX_CONTEXT: i64 = 200;

/// How a pattern is read; the same for searching and replacing.
#[derive(Debug, Default, Args)]
pub(crate) struct MatchArgs {
    /// Ignore case
    #[arg(short = 'i', long, overrides_with_all = ["smart_case", "case_sensitive"])]
    pub(crate) ignore_case: bool,
    /// Ignore case unless the pattern has a capital letter
    #[arg(short = 'S', long, overrides_with_all = ["ignore_case", "case_sensitive"])]
    pub(crate) smart_case: bool,
    /// Capital letters matter, as they do if nothing is said
    #[arg(short = 's', long, overrides_with_all = ["ignore_case", "smart_case"])]
    pub(crate) case_sensitive: bool,
    /// Only whole words
    #[arg(short = 'w', long, conflicts_with = "line_regexp")]
    pub(crate) word_regexp: bool,
    /// Only whole lines
    #[arg(short = 'x', long)]
    pub(crate) line_regexp: bool,
    /// The pattern is text, no regular expression
    #[arg(short = 'F', long)]
    pub(crate) fixed_strings: bool,
    /// The pattern is a basic regular expression, as grep's without -E
    #[arg(short = 'G', long, conflicts_with = "fixed_strings")]
    pub(crate) basic_regexp: bool,
    /// Let a match run over several lines
    #[arg(short = 'U', long)]
    pub(crate) multiline: bool,
    /// Let `.` match line ends too, with -U
    #[arg(long, requires = "multiline")]
    pub(crate) multiline_dotall: bool,
}

/// Which files are looked at; the same for searching and replacing.
#[derive(Debug, Default, Args)]
pub(crate) struct FilesArgs {
    /// Only files that match this glob; `!GLOB` leaves them out; may be given several times
    #[arg(short = 'g', long = "glob", value_name = "GLOB", allow_hyphen_values = true)]
    pub(crate) globs: Vec<String>,
    /// Only files of this type, such as rust or py; may be given several times
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// No files of this type; may be given several times
    #[arg(short = 'T', long = "type-not", value_name = "TYPE")]
    pub(crate) types_not: Vec<String>,
    /// Hidden files too
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Files that .gitignore and .ignore name too
    #[arg(long)]
    pub(crate) no_ignore: bool,
    /// As --no-ignore; twice: as --hidden, too
    #[arg(short = 'u', long, action = ArgAction::Count)]
    pub(crate) unrestricted: u8,
    /// How many directories deep
    #[arg(long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,
}

/// How long, and where although it is much.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Deadline, such as 500ms, 10s or 2m; 1 minute if absent
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    pub(crate) timeout: Option<Duration>,
    /// Allow `/` and the home directory
    #[arg(long)]
    pub(crate) force: bool,
}

/// Searches the content of files, in a session's worker.
///
/// Leaves out what .gitignore and .ignore name, hidden files and binary files. On a terminal matches stand
/// below their file; in a pipe each line is `path:line:text`. Paths are relative to the current directory.
#[derive(Debug, Args)]
#[command(
    override_usage = "quack grep [OPTIONS] <PATTERN> [PATH]...\n       quack grep [OPTIONS] -e <PATTERN>... [PATH]...",
    after_help = "Examples:\n  quack grep 'fn main'\n  \
    quack grep -iw todo src -g '*.rs' -g '!*_test.rs'\n  \
    quack grep -F 'a[0]' --context 2 -C ~/src/app\n  quack grep -l -t py import\n  \
    quack grep -c -e needle -e thread\n  quack grep --json TODO | jq -r 'select(.type==\"match\").text'\n\n\
    -C is the directory, as in every verb; lines of context are --context, -A and -B.\n\
    --json prints a line for each file, count, match and line of context, and a last one of the type summary.\n\n\
    Exit codes: 0 something matches, 1 nothing does, 2 usage, bad pattern, or it failed, 3 no daemon,\n\
    4 busy or deadline (what was found until then is printed)."
)]
pub(crate) struct GrepArgs {
    /// PATTERN, a regular expression (not with -e), then files and directories; the current directory if absent
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// A pattern, also one that begins with `-`; may be given several times, then any of them
    #[arg(short = 'e', long = "regexp", value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) patterns: Vec<String>,
    #[command(flatten)]
    pub(crate) matching: MatchArgs,
    /// Lines that do not match
    #[arg(short = 'v', long)]
    pub(crate) invert_match: bool,
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    /// Binary files too, as if they were text
    #[arg(short = 'a', long)]
    pub(crate) text: bool,
    /// What files are written in, such as latin1; `none` looks at bytes; by their marks if absent
    #[arg(long, value_name = "LABEL")]
    pub(crate) encoding: Option<String>,
    /// Follow symbolic links that stay in the workspace
    #[arg(long)]
    pub(crate) follow: bool,
    /// Lines of context after each match
    #[arg(short = 'A', long, value_name = "N", value_parser = context())]
    pub(crate) after_context: Option<i64>,
    /// Lines of context before each match
    #[arg(short = 'B', long, value_name = "N", value_parser = context())]
    pub(crate) before_context: Option<i64>,
    /// Lines of context on both sides
    #[arg(long, value_name = "N", value_parser = context())]
    pub(crate) context: Option<i64>,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Most matching lines of each file
    #[arg(short = 'm', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_count: Option<u64>,
    /// Most lines, or names, altogether
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// By path, or the files that changed last first
    #[arg(long, value_name = "KEY", default_value = "path")]
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
pub(crate) struct LayoutArgs {
    /// Most characters of a line; of a longer one those around its first match
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(40..=10_000))]
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

/// Finds files and directories by name, kind, size and time, in a session's worker.
///
/// Leaves out what .gitignore and .ignore name, and hidden files. Paths are relative to the current directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack find '*.rs'\n  quack find 'src/**/mod.rs' -l\n  \
    quack find -t d\n  quack find --size +1M --newer 2d --sort size\n  \
    quack find --fuzzy mnrs\n  quack find '*.log' -0 | xargs -0 wc -l\n\n\
    PATTERN is a glob of the whole name; with a slash it is one of the path.\n\
    --json prints a line for each entry and a last one of the type summary.\n\n\
    Exit codes: 0 ok, also if nothing was found, 2 usage, bad pattern, or it failed, 3 no daemon,\n\
    4 busy or deadline (what was found until then is printed).")]
pub(crate) struct FindArgs {
    /// Glob; everything if absent
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// Directories; the current one if absent
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Only files (f), directories (d) or symbolic links (l)
    #[arg(short = 't', long = "type", value_name = "KIND")]
    pub(crate) kind: Option<FindKind>,
    /// The letters of PATTERN in this order, with others between them; best first
    #[arg(long)]
    pub(crate) fuzzy: bool,
    /// Ignore case
    #[arg(short = 'i', long, overrides_with = "case_sensitive")]
    pub(crate) ignore_case: bool,
    /// Capital letters matter, as they do if nothing is said
    #[arg(short = 's', long, overrides_with = "ignore_case")]
    pub(crate) case_sensitive: bool,
    /// Leave out what matches this glob; may be given several times
    #[arg(short = 'E', long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Hidden files too
    #[arg(short = 'H', long)]
    pub(crate) hidden: bool,
    /// Files that .gitignore and .ignore name too
    #[arg(short = 'I', long)]
    pub(crate) no_ignore: bool,
    /// As --no-ignore and --hidden
    #[arg(short = 'u', long, action = ArgAction::Count)]
    pub(crate) unrestricted: u8,
    /// Follow symbolic links that stay in the workspace
    #[arg(long)]
    pub(crate) follow: bool,
    /// How many directories deep
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,
    /// At least (+), at most (-) or exactly so large: +10k, -1M, 512; twice for both
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size)]
    pub(crate) size: Vec<SizeBound>,
    /// Changed after a time, or within so much time: 2026-03-10, 2h, 3d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) newer: Option<String>,
    /// Changed before a time, or longer ago than so much time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) older: Option<String>,
    /// By path, last changed first, largest first, or best first
    #[arg(long, value_name = "KEY")]
    pub(crate) sort: Option<FindSort>,
    /// With mode, size and time of change
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// A NUL after each path instead of a line end
    #[arg(short = '0', long = "print0", conflicts_with_all = ["json", "long"])]
    pub(crate) null: bool,
    /// Most entries altogether
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) call: CallArgs,
}

/// The values of `--type` of `quack find`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindKind {
    #[value(name = "f", aliases = ["file"])]
    File,
    #[value(name = "d", aliases = ["dir", "directory"])]
    Directory,
    #[value(name = "l", aliases = ["link", "symlink"])]
    Symlink,
}

/// The values of `--sort` of `quack find`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindSort {
    Path,
    Modified,
    Size,
    Score,
}

/// One `--size`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeBound {
    AtLeast(u64),
    AtMost(u64),
    Exactly(u64),
}

/// Replaces what matches in files, in a session's worker, at once; `quack undo` takes it back.
///
/// Every file is replaced as a whole or not at all. Line ends, marks of encodings and everything outside of the
/// matches stay. If a limit or an --expect does not hold, nothing is written.
#[derive(Debug, Args)]
#[command(
    override_usage = "quack replace [OPTIONS] <PATTERN> <REPLACEMENT> [PATH]...\n       quack replace [OPTIONS] --plan <ID>",
    after_help = "Examples:\n  quack replace --dry-run 'colou?r' tint src\n  \
    quack replace -w old_name new_name -t rust\n  \
    quack replace '(\\w+)@(\\w+)' '${2} at ${1}' README.md\n  \
    quack replace -F 'a.b()' 'a.c()' --expect-replacements 3\n  \
    quack replace --dry-run x y | git apply\n  quack replace --plan ID      what a dry run has shown\n\n\
    With --dry-run the output is a patch whose paths begin at the workspace; nothing is written.\n\
    --json prints one document.\n\n\
    Exit codes: 0 replaced (or would be), 1 nothing matches, a limit or --expect does not hold, or not all could be\n\
    written, 2 usage or bad pattern, 3 no daemon, 4 busy or deadline."
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
    #[command(flatten)]
    pub(crate) matching: MatchArgs,
    #[command(flatten)]
    pub(crate) files: FilesArgs,
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

/// Prints the JSON Schema of what programs exchange with the daemon.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  quack schema tools\n  quack schema tools grep_search")]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    pub(crate) verb: SchemaVerb,
}

/// What `quack schema` does.
#[derive(Debug, Subcommand)]
pub(crate) enum SchemaVerb {
    Tools(SchemaToolsArgs),
}

/// Prints the JSON Schema of every tool's arguments, or of one tool's. Works without a daemon.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack schema tools\n  quack schema tools bash | jq .properties"
)]
pub(crate) struct SchemaToolsArgs {
    /// Tool; all if absent
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

fn context() -> clap::builder::RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(0..=MAX_CONTEXT)
}

/// `+10k`, `-1M`, `512`: a number, then k, M or G of 1024.
fn size(text: &str) -> Result<SizeBound, String> {
    let (bound, rest): (fn(u64) -> SizeBound, &str) = match text.split_at_checked(1) {
        Some(("+", rest)) => (SizeBound::AtLeast, rest),
        Some(("-", rest)) => (SizeBound::AtMost, rest),
        _ => (SizeBound::Exactly, text),
    };
    let digits = rest.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match rest.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        _ => None,
    };
    let number = digits.parse::<u64>().ok();
    number
        .zip(shift)
        .and_then(|(number, shift)| number.checked_mul(1 << shift))
        .map(bound)
        .ok_or_else(|| "give a size such as +10k, -1M or 512".to_owned())
}

/// A time as RFC 3339 in UTC: a date, a date with a time (local unless it says otherwise), or so long ago.
fn moment(text: &str) -> Result<String, String> {
    moment_at(text, &jiff::Zoned::now())
}

fn moment_at(text: &str, now: &jiff::Zoned) -> Result<String, String> {
    use jiff::civil::{Date, DateTime};
    let zone = now.time_zone();
    let local = |time: DateTime| time.to_zoned(zone.clone()).ok().map(|time| time.timestamp());
    let ago = |span: jiff::Span| now.checked_sub(span.abs()).ok().map(|time| time.timestamp());
    let exact = text.parse::<jiff::Timestamp>().ok();
    let found = exact
        .or_else(|| text.parse::<DateTime>().ok().and_then(local))
        .or_else(|| text.parse::<Date>().ok().and_then(|day| local(day.at(0, 0, 0, 0))))
        .or_else(|| text.parse::<jiff::Span>().ok().and_then(ago));
    found.map(|time| time.to_string()).ok_or_else(|| {
        "give a date such as 2026-03-10, or a time that has passed, such as 2h or 3d".to_owned()
    })
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
    use crate::args::{Cli, Verb};
    use clap::error::ErrorKind;

    fn verb(line: &[&str]) -> Result<Verb, clap::Error> {
        Ok(Cli::read(["quack"].iter().chain(line))?.verb.unwrap())
    }

    fn grep(line: &[&str]) -> GrepArgs {
        match verb(&[&["grep"], line].concat()) {
            Ok(Verb::Grep(args)) => *args,
            other => panic!("not a search: {other:?}"),
        }
    }

    #[test]
    fn the_flags_of_grep_and_ripgrep_are_taken_together_and_apart() {
        let args = grep(&[
            "-rniE", "todo", "src", "lib", "-A2", "-B", "3", "-g!*.md", "-g", "*.rs", "-uu",
        ]);
        assert_eq!(args.words, ["todo", "src", "lib"]);
        assert_eq!(
            (args.after_context, args.before_context, args.context),
            (Some(2), Some(3), None)
        );
        assert_eq!(args.files.globs, ["!*.md", "*.rs"]);
        assert_eq!(args.files.unrestricted, 2);
        assert!(args.matching.ignore_case && args.layout.line_number);
        let args = grep(&["-C", "/src", "--context=4", "-e", "-x", "-e-y", "--", "-dir"]);
        assert_eq!(
            (args.patterns, args.words),
            (vec!["-x".to_owned(), "-y".to_owned()], vec!["-dir".to_owned()])
        );
        assert_eq!(args.call.which.dir.as_deref(), Some(std::path::Path::new("/src")));
        let args = grep(&["-i", "-s", "-S", "-nN", "x"]);
        let MatchArgs { ignore_case, case_sensitive, smart_case, .. } = args.matching;
        assert_eq!(
            (ignore_case, case_sensitive, smart_case),
            (false, false, true),
            "the last one counts"
        );
        assert!(args.layout.no_line_number && !args.layout.line_number);
    }

    #[test]
    fn what_contradicts_itself_is_a_usage_error() {
        for (line, kind) in [
            (&["grep", "-l", "-c", "x"][..], ErrorKind::ArgumentConflict),
            (&["grep", "-wx", "x"], ErrorKind::ArgumentConflict),
            (&["grep", "-A", "201", "x"], ErrorKind::ValueValidation),
            (&["grep", "-m", "0", "x"], ErrorKind::ValueValidation),
            (&["grep", "--multiline-dotall", "x"], ErrorKind::MissingRequiredArgument),
            (&["grep", "--session", "s", "-C", ".", "x"], ErrorKind::ArgumentConflict),
            (&["find", "--size", "big"], ErrorKind::ValueValidation),
            (&["find", "--newer", "soon"], ErrorKind::ValueValidation),
            (&["find", "-t", "x"], ErrorKind::InvalidValue),
            (&["find", "-0", "--json"], ErrorKind::ArgumentConflict),
            (&["replace", "--plan", "p", "x", "y"], ErrorKind::ArgumentConflict),
            (&["replace", "--plan", "p", "--dry-run"], ErrorKind::ArgumentConflict),
            (&["replace", "x", "y", "--line-range", "3:2"], ErrorKind::ValueValidation),
            (&["undo", "--list", "u1"], ErrorKind::ArgumentConflict),
            (&["undo", ""], ErrorKind::ValueValidation),
            (&["undo", " "], ErrorKind::ValueValidation),
            (&["schema"], ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
        ] {
            let error = verb(line).unwrap_err();
            assert_eq!((error.kind(), error.exit_code()), (kind, 2), "{line:?}");
        }
    }

    #[test]
    fn a_size_has_a_sign_a_number_and_a_unit() {
        for (text, bound) in [
            ("+10k", Some(SizeBound::AtLeast(10_240))),
            ("-1M", Some(SizeBound::AtMost(1 << 20))),
            ("512", Some(SizeBound::Exactly(512))),
            ("2GiB", Some(SizeBound::Exactly(2 << 30))),
            ("+", None),
            ("", None),
            ("k", None),
            ("1T", None),
            ("99999999999G", None),
            ("é", None),
        ] {
            assert_eq!(size(text).ok(), bound, "{text}");
        }
    }

    #[test]
    fn a_moment_is_a_date_or_so_long_ago() {
        let now: jiff::Zoned = "2026-03-10T12:00:00+02:00[+02:00]".parse().unwrap();
        for (text, moment) in [
            ("2h", Some("2026-03-10T08:00:00Z")),
            ("3d", Some("2026-03-07T10:00:00Z")),
            ("1 week", Some("2026-03-03T10:00:00Z")),
            ("2026-03-01", Some("2026-02-28T22:00:00Z")),
            ("2026-03-01T10:00", Some("2026-03-01T08:00:00Z")),
            ("2026-03-01T10:00:00Z", Some("2026-03-01T10:00:00Z")),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(moment_at(text, &now).ok().as_deref(), moment, "{text}");
        }
    }

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
