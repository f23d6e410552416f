//! Common arguments of `quack grep`, `find`, `replace` and `undo`.
//!
//! Flags have the names of grep, ripgrep, fd and sd where those agree. `-C` is the directory, as in every subcommand,
//! so context lines have `--context` only.

mod find;
mod grep;
mod replace;

pub(crate) use find::{FindArgs, FindKind, FindSort, SizeBound};
pub(crate) use grep::{GrepArgs, GrepSort};
pub(crate) use replace::ReplaceArgs;

use super::SessionArgs;
use super::tool::deadline;
use clap::{Arg, ArgAction, Args};
use std::time::Duration;

/// Orders the options of a help group by their long names, as ripgrep does.
fn by_name(option: Arg) -> Arg {
    /// Number of letters that the sort key holds.
    const LETTERS: usize = 13;
    if option.is_positional() {
        return option;
    }
    let letter = |byte: u8| usize::from(byte.to_ascii_lowercase().saturating_sub(b'a' - 1));
    let name = option.get_long().unwrap_or_default().bytes().map(letter);
    let order = name.chain(std::iter::repeat(0)).take(LETTERS).fold(0, |sum, n| sum * 27 + n);
    option.display_order(order)
}

/// Interpretation of a pattern, shared by searching and replacing.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Search options")]
pub(crate) struct MatchArgs {
    /// Ignore case
    #[arg(short = 'i', long, overrides_with_all = ["smart_case", "case_sensitive"])]
    pub(crate) ignore_case: bool,
    /// Ignore case unless the pattern has a capital letter
    #[arg(short = 'S', long, overrides_with_all = ["ignore_case", "case_sensitive"])]
    pub(crate) smart_case: bool,
    /// Match case (default)
    #[arg(short = 's', long, overrides_with_all = ["ignore_case", "smart_case"])]
    pub(crate) case_sensitive: bool,
    /// Match only whole words
    #[arg(short = 'w', long, conflicts_with = "line_regexp")]
    pub(crate) word_regexp: bool,
    /// Match only whole lines
    #[arg(short = 'x', long)]
    pub(crate) line_regexp: bool,
    /// Treat the pattern as literal text
    #[arg(short = 'F', long)]
    pub(crate) fixed_strings: bool,
    /// Use basic regular expressions, as grep without -E
    #[arg(short = 'G', long, conflicts_with = "fixed_strings")]
    pub(crate) basic_regexp: bool,
    /// Let a match span several lines
    #[arg(short = 'U', long)]
    pub(crate) multiline: bool,
    /// With -U, let `.` match line ends too
    #[arg(long, requires = "multiline")]
    pub(crate) multiline_dotall: bool,
}

/// Selection of files, shared by searching and replacing.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Filter options")]
pub(crate) struct FilesArgs {
    /// Select only files that match this glob; `!GLOB` excludes; repeatable
    #[arg(short = 'g', long = "glob", value_name = "GLOB", allow_hyphen_values = true)]
    pub(crate) globs: Vec<String>,
    /// Select only files of this type, such as rust or py; repeatable
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// Skip files of this type; repeatable
    #[arg(short = 'T', long = "type-not", value_name = "TYPE")]
    pub(crate) types_not: Vec<String>,
    /// Include hidden files
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Include files listed in .gitignore and .ignore
    #[arg(long)]
    pub(crate) no_ignore: bool,
    /// Imply --no-ignore; if given twice, --hidden too
    #[arg(short = 'u', long, action = ArgAction::Count)]
    pub(crate) unrestricted: u8,
    /// Maximum depth in directories
    #[arg(long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,
}

/// Session and deadline of a tool call.
#[derive(Debug, Args)]
#[command(next_help_heading = "Call options")]
pub(crate) struct ToolCallArgs {
    #[command(flatten)]
    pub(crate) which: SessionArgs,
    /// Deadline, such as 500ms, 10s or 2m [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    pub(crate) timeout: Option<Duration>,
    /// Accepted for old scripts; has no effect
    #[arg(long, hide = true)]
    pub(crate) force: bool,
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
            (&["grep", "-m", "-1", "x"], ErrorKind::UnknownArgument),
            (&["grep", "-M", "10001", "x"], ErrorKind::ValueValidation),
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
            (&["schema", "attach", "--typescript"], ErrorKind::ArgumentConflict),
        ] {
            let error = verb(line).unwrap_err();
            assert_eq!((error.kind(), error.exit_code()), (kind, 2), "{line:?}");
        }
    }
}
