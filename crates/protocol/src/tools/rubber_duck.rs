//! grep_search and find_files: the names, parameters and texts of the Rubber Duck daemon, and some additional
//! parameters that other agents send.

use super::row::{Action, Kind, Offer, Parameter, READS, Tool, flag, text, whole};
use crate::limits::MAX_ROWS;

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[GREP_SEARCH, FIND_FILES];

const PATH: Parameter = text("path", "Directory to look in, relative to the workspace.")
    .also(&["directory", "dir"])
    .or("\".\"");

/// Searches the text of files, with the texts of the Rubber Duck daemon.
pub const GREP_SEARCH: Tool = Tool {
    name: "grep_search",
    about: "Finds lines in files by a regular expression: rows path:line:text. Searches every text file, hidden and \
            ignored ones too, but in .git, .build and node_modules.",
    main: Some("pattern"),
    action: Action::Search,
    offer: Offer::Ask,
    of_pi: &["grep"],
    parameters: &[
        text("pattern", "A regular expression in the syntax of Rust's regex crate.")
            .also(&["query", "regex"])
            .required(),
        text("path", "File or directory to search, relative to the workspace.")
            .also(&["directory", "dir", "dir_path"])
            .or("\".\""),
        text("include", "A glob of files to search, such as *.ts or *.{js,tsx}.")
            .also(&["include_pattern", "glob"]),
        text("exclude", "A glob of files and directories to leave out."),
        flag("case_sensitive", "Case matters.").or("true"),
        flag("fixed_strings", "The pattern is plain text.")
            .also(&["fixed_string", "literal"])
            .or("false"),
        whole("context", 0, 200, "Lines to show around each match.").or("0"),
        whole("before", 0, 200, "Lines to show before each match; else as context."),
        whole("after", 0, 200, "Lines to show after each match; else as context."),
        flag("names_only", "Names of files with a match instead of lines.").or("false"),
        whole("total_max_matches", 1, MAX_ROWS, "Rows in the answer.").also(&["max_results"]),
        whole("max_matches_per_file", 1, u64::MAX, "Matching lines of one file."),
        flag("no_ignore", "Search what ignore files name, whatever the configuration says."),
    ],
    ..READS
};

const FIND_FILES: Tool = Tool {
    name: "find_files",
    about: "Finds files by name: one path a line, relative to the workspace, at most 200. Case does not matter.",
    main: Some("pattern"),
    action: Action::Search,
    offer: Offer::Ask,
    of_pi: &["find", "ls"],
    parameters: &[
        text("pattern", "A glob in the syntax of minimatch, such as *.ts or src/**/*.{js,tsx}.")
            .also(&["glob"])
            .or("\"**/*\""),
        PATH,
        Parameter::new("include_hidden", Kind::Flag, "Also names that begin with a dot.")
            .or("false"),
        flag("include_directories", "Directories too.").or("false"),
    ],
    ..READS
};
