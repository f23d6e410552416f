//! Tools with the names, parameters and texts of other agents: search_content, replace_content and search_glob_files of
//! Nixcode, ripgrep_search of Radbot and RA.Aid.

use super::row::{Action, Kind, Offer, Parameter, READS, Tool, WRITES, flag, text, whole};

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] =
    &[SEARCH_CONTENT, REPLACE_CONTENT, SEARCH_GLOB_FILES, RIPGREP_SEARCH];

const GLOB_PATTERN: Parameter = text(
    "glob_pattern",
    "Files to look at, from the root of the workspace: *.rs are those in the root only, **/*.rs all.",
)
.required();
const INCLUDE_GITIGNORED: Parameter =
    flag("include_gitignored", "Also files that git ignores.").or("false");
const INCLUDE_HIDDEN: Parameter = flag(
    "include_hidden",
    "Also files and directories whose name begins with a dot. Default: only if the glob names one.",
);
const OFFSET: Parameter =
    whole("offset", 0, u64::MAX, "How many results to leave out at the beginning.").or("0");

const SEARCH_CONTENT: Tool = Tool {
    name: "search_content",
    about: "Search for text content in files using a regex pattern. 100 lines an answer; offset goes on.",
    action: Action::Search,
    offer: Offer::Ask,
    parameters: &[
        text("pattern", "Regex pattern to search for in file content.").required(),
        GLOB_PATTERN,
        INCLUDE_GITIGNORED,
        INCLUDE_HIDDEN,
        OFFSET,
    ],
    ..READS
};

const REPLACE_CONTENT: Tool = Tool {
    name: "replace_content",
    about: "Replace text content in files based on a regex pattern, line by line. Line ends and all other bytes \
            stay as they are; undo takes it back.",
    action: Action::Other,
    offer: Offer::Ask,
    parameters: &[
        text("pattern", "Regex pattern to search for in file content.").required(),
        text("replacement", "Replacement; may use capture groups: $1, ${name}, $$.").required(),
        GLOB_PATTERN,
        INCLUDE_GITIGNORED,
        INCLUDE_HIDDEN,
        flag("dry_run", "Change nothing: answer what would be replaced.").or("false"),
        Parameter::new(
            "expect",
            Kind::Counts(&["files", "lines", "replacements"]),
            "How many there must be; otherwise nothing is written.",
        ),
        whole("max_files", 1, 20_000, "With more files than this nothing is written.").or("500"),
    ],
    ..WRITES
};

const SEARCH_GLOB_FILES: Tool = Tool {
    name: "search_glob_files",
    about: "Search for files and directories using a glob pattern. 100 paths an answer; offset goes on.",
    action: Action::Search,
    offer: Offer::Ask,
    parameters: &[
        text(
            "pattern",
            "Glob from the root of the workspace: *.rs are files in the root only, **/*.rs all.",
        )
        .required(),
        INCLUDE_GITIGNORED,
        INCLUDE_HIDDEN,
        OFFSET,
    ],
    ..READS
};

const RIPGREP_SEARCH: Tool = Tool {
    name: "ripgrep_search",
    about: "Search files by a regular expression as ripgrep does: ignored and hidden files and some directories are \
            left out. Gives an object: output (a path, then number:text of its lines), return_code, success.",
    main: Some("pattern"),
    action: Action::Search,
    offer: Offer::Ask,
    parameters: &[
        text("pattern", "The regular expression, or plain text with fixed_string.").required(),
        whole("before_context_lines", 0, 200, "Lines to show before each match."),
        whole("after_context_lines", 0, 200, "Lines to show after each match."),
        text("file_type", "Kind of files by a short or long name, such as py, js or rust."),
        flag("case_sensitive", "Case matters.").or("true"),
        flag(
            "include_hidden",
            "Also files and directories whose name begins with a dot. Default: only if a path names one.",
        ),
        flag("follow_links", "Follow symlinks that stay in the workspace.").or("false"),
        Parameter::new(
            "exclude_dirs",
            Kind::List,
            "More directories that are not entered, by name or glob.",
        ),
        Parameter::new(
            "include_paths",
            Kind::List,
            "Files and directories to search instead of the whole workspace.",
        ),
        flag("fixed_string", "The pattern is plain text.").or("false"),
    ],
    ..READS
};
