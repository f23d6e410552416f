//! grep_search and find_files: the names, parameters and texts of the Rubber Duck daemon, and some additional
//! parameters that other agents send.

use super::arguments::arguments;
use super::forms::{Checked, MayBeEmpty};
use super::row::{Action, Kind, Offer, Parameter, READS, Tool, flag, text, whole};
use crate::limits::MAX_ROWS;

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[GREP_SEARCH, FIND_FILES];

const PATH: Parameter = text("Directory to look in, relative to the workspace.")
    .also(&["directory", "dir"])
    .or("\".\"");

arguments! {
    /// Arguments of `grep_search`.
    GrepSearchArguments {
        pattern: Option<String> = text("A regular expression in the syntax of Rust's regex crate.")
            .also(&["query", "regex"])
            .required(),
        path: Option<String> = text("File or directory to search, relative to the workspace.")
            .also(&["directory", "dir", "dir_path"])
            .or("\".\""),
        include: MayBeEmpty = text("A glob of files to search, such as *.ts or *.{js,tsx}.")
            .also(&["include_pattern", "glob"]),
        exclude: Checked<Vec<String>> = text("A glob of files and directories to leave out."),
        case_sensitive: Checked<Option<bool>> = flag("Case matters.").or("true"),
        fixed_strings: Checked<bool> = flag("The pattern is plain text.")
            .also(&["fixed_string", "literal"])
            .or("false"),
        context: Checked<Option<u64>> = whole(0, 200, "Lines to show around each match.").or("0"),
        before: Checked<Option<u64>> = whole(0, 200, "Lines to show before each match; else as context."),
        after: Checked<Option<u64>> = whole(0, 200, "Lines to show after each match; else as context."),
        names_only: Checked<bool> = flag("Names of files with a match instead of lines.").or("false"),
        total_max_matches: Checked<Option<u64>> = whole(1, MAX_ROWS, "Rows in the answer.").also(&["max_results"]),
        max_matches_per_file: Checked<Option<u64>> = whole(1, u64::MAX, "Matching lines of one file."),
        no_ignore: Checked<bool> = flag("Search what ignore files name, whatever the configuration says."),
    }
}

/// Searches the text of files, with the texts of the Rubber Duck daemon.
pub const GREP_SEARCH: Tool = Tool {
    name: "grep_search",
    about: "Finds lines in files by a regular expression: rows path:line:text. Searches every text file, hidden and \
            ignored ones too, but in .git, .build and node_modules.",
    main: Some("pattern"),
    action: Action::Search,
    offer: Offer::Ask,
    of_pi: &["grep"],
    parameters: GrepSearchArguments::PARAMETERS,
    ..READS
};

arguments! {
    /// Arguments of `find_files`.
    FindFilesArguments {
        pattern: Option<String> = text("A glob in the syntax of minimatch, such as *.ts or src/**/*.{js,tsx}.")
            .also(&["glob"])
            .or("\"**/*\""),
        path: Option<String> = PATH,
        include_hidden: bool = Parameter::new(Kind::Flag, "Also names that begin with a dot.")
            .or("false"),
        include_directories: bool = flag("Directories too.").or("false"),
    }
}

const FIND_FILES: Tool = Tool {
    name: "find_files",
    about: "Finds files by name: one path a line, relative to the workspace, at most 200. Case does not matter.",
    main: Some("pattern"),
    action: Action::Search,
    offer: Offer::Ask,
    of_pi: &["find", "ls"],
    parameters: FindFilesArguments::PARAMETERS,
    ..READS
};
