//! Tools with the names, parameters and texts of other products: grep_search and find_files of the Rubber Duck daemon,
//! with some additional parameters that other agents send; search_content, replace_content and search_glob_files of
//! Nixcode; ripgrep_search of Radbot and RA.Aid.

use super::arguments::arguments;
use super::forms::{Checked, Counts, MayBeEmpty};
use super::row::{Action, Kind, Offer, Parameter, READS, Tool, WRITES, flag, text, whole};
use crate::limits::MAX_ROWS;

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] =
    &[GREP_SEARCH, FIND_FILES, SEARCH_CONTENT, REPLACE_CONTENT, SEARCH_GLOB_FILES, RIPGREP_SEARCH];

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

const GLOB_PATTERN: Parameter = text(
    "Files to look at, from the root of the workspace: *.rs are those in the root only, **/*.rs all.",
)
.required();
const INCLUDE_GITIGNORED: Parameter = flag("Also files that git ignores.").or("false");
const INCLUDE_HIDDEN: Parameter = flag(
    "Also files and directories whose name begins with a dot. Default: only if the glob names one.",
);
const OFFSET: Parameter =
    whole(0, u64::MAX, "How many results to leave out at the beginning.").or("0");

arguments! {
    /// Arguments of `search_content`.
    SearchContentArguments {
        pattern: Checked<String> = text("Regex pattern to search for in file content.").required(),
        glob_pattern: Checked<String> = GLOB_PATTERN,
        include_gitignored: Checked<bool> = INCLUDE_GITIGNORED,
        include_hidden: Checked<Option<bool>> = INCLUDE_HIDDEN,
        offset: Checked<u64> = OFFSET,
    }
}

const SEARCH_CONTENT: Tool = Tool {
    name: "search_content",
    about: "Search for text content in files using a regex pattern. 100 lines an answer; offset goes on.",
    action: Action::Search,
    offer: Offer::Ask,
    parameters: SearchContentArguments::PARAMETERS,
    ..READS
};

arguments! {
    /// Arguments of `replace_content`.
    ReplaceContentArguments {
        pattern: Checked<String> = text("Regex pattern to search for in file content.").required(),
        replacement: Checked<String> = text("Replacement; may use capture groups: $1, ${name}, $$.").required(),
        glob_pattern: Checked<String> = GLOB_PATTERN,
        include_gitignored: Checked<bool> = INCLUDE_GITIGNORED,
        include_hidden: Checked<Option<bool>> = INCLUDE_HIDDEN,
        dry_run: Checked<bool> = flag("Change nothing: answer what would be replaced.").or("false"),
        expect: Checked<Counts> = Parameter::new(
            Kind::Counts(Counts::NAMES),
            "How many there must be; otherwise nothing is written.",
        ),
        max_files: Checked<usize> = whole(1, 20_000, "With more files than this nothing is written.").or("500"),
    }
}

const REPLACE_CONTENT: Tool = Tool {
    name: "replace_content",
    about: "Replace text content in files based on a regex pattern, line by line. Line ends and all other bytes \
            stay as they are; undo takes it back.",
    action: Action::Other,
    offer: Offer::Ask,
    parameters: ReplaceContentArguments::PARAMETERS,
    ..WRITES
};

arguments! {
    /// Arguments of `search_glob_files`.
    SearchGlobFilesArguments {
        pattern: Checked<String> = text(
            "Glob from the root of the workspace: *.rs are files in the root only, **/*.rs all.",
        )
        .required(),
        include_gitignored: Checked<bool> = INCLUDE_GITIGNORED,
        include_hidden: Checked<Option<bool>> = INCLUDE_HIDDEN,
        offset: Checked<u64> = OFFSET,
    }
}

const SEARCH_GLOB_FILES: Tool = Tool {
    name: "search_glob_files",
    about: "Search for files and directories using a glob pattern. 100 paths an answer; offset goes on.",
    action: Action::Search,
    offer: Offer::Ask,
    parameters: SearchGlobFilesArguments::PARAMETERS,
    ..READS
};

arguments! {
    /// Arguments of `ripgrep_search`.
    RipgrepSearchArguments {
        pattern: Checked<String> = text("The regular expression, or plain text with fixed_string.").required(),
        before_context_lines: Checked<usize> = whole(0, 200, "Lines to show before each match."),
        after_context_lines: Checked<usize> = whole(0, 200, "Lines to show after each match."),
        file_type: Checked<Option<String>> = text("Kind of files by a short or long name, such as py, js or rust."),
        case_sensitive: Checked<Option<bool>> = flag("Case matters.").or("true"),
        include_hidden: Checked<Option<bool>> = flag(
            "Also files and directories whose name begins with a dot. Default: only if a path names one.",
        ),
        follow_links: Checked<bool> = flag("Follow symlinks that stay in the workspace.").or("false"),
        exclude_dirs: Checked<Vec<String>> = Parameter::new(
            Kind::List,
            "More directories that are not entered, by name or glob.",
        ),
        include_paths: Checked<Vec<String>> = Parameter::new(
            Kind::List,
            "Files and directories to search instead of the whole workspace.",
        ),
        fixed_string: Checked<bool> = flag("The pattern is plain text.").or("false"),
    }
}

const RIPGREP_SEARCH: Tool = Tool {
    name: "ripgrep_search",
    about: "Search files by a regular expression as ripgrep does: ignored and hidden files and some directories are \
            left out. Gives an object: output (a path, then number:text of its lines), return_code, success.",
    main: Some("pattern"),
    action: Action::Search,
    offer: Offer::Ask,
    parameters: RipgrepSearchArguments::PARAMETERS,
    ..READS
};
