//! Parameters of quackd's own search tools: search, find, replace, undo.

use super::row::{Action, Kind, Offer, Parameter, READS, Tool, WRITES, flag, text, whole};
use crate::limits::{MAX_OUTPUT_BYTES, MAX_ROWS, MAX_SEARCH_OUTPUT_BYTES, MIN_SEARCH_OUTPUT_BYTES};

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[SEARCH, FIND, REPLACE, UNDO];

const fn texts(name: &'static str, about: &'static str) -> Parameter {
    Parameter::new(name, Kind::Texts, about)
}

const fn choice(
    name: &'static str,
    words: &'static [&'static str],
    about: &'static str,
) -> Parameter {
    Parameter::new(name, Kind::Choice(words), about)
}

// How a pattern is read.

const PATTERN: Parameter = texts(
    "pattern",
    "A regular expression in the syntax of Rust's regex crate (as ripgrep has it), or several: any of them counts.",
)
.also(&["query", "regex"]);
const MODE: Parameter = choice(
    "mode",
    &["regex", "literal", "word", "line"],
    "regex; literal: the pattern is plain text; word: a regex for whole words; line: a regex for whole lines.",
)
.or("\"regex\"");
const LITERAL: Parameter = flag("literal", "The pattern is plain text.")
    .also(&["fixed_strings", "fixed_string", "-F"])
    .spelling();
const WORD: Parameter =
    flag("word", "Whole words only.").also(&["whole_word", "word_regexp", "-w"]).spelling();
const WHOLE_LINE: Parameter =
    flag("whole_line", "Whole lines only.").also(&["line_regexp", "-x"]).spelling();
const DIALECT: Parameter = choice(
    "dialect",
    &["auto", "rust", "bre"],
    "rust; bre: a POSIX basic regular expression as grep reads it; auto: rust, and bre if that finds nothing and \
     the pattern looks like one.",
)
.or("\"auto\"");
const CASE: Parameter = choice(
    "case",
    &["sensitive", "insensitive", "smart"],
    "smart: insensitive unless the pattern has a capital letter.",
)
.or("\"sensitive\"");
const CASE_SENSITIVE: Parameter = flag("case_sensitive", "Case matters.").spelling();
const IGNORE_CASE: Parameter =
    flag("ignore_case", "Case does not matter.").also(&["ignoreCase", "-i"]).spelling();
const MULTILINE: Parameter = Parameter::new(
    "multiline",
    Kind::ChoiceOrFlag(&["off", "on", "auto"], "on", "off"),
    "Whether a match may cross lines. auto: if the pattern has a \\n.",
);
const DOTALL: Parameter = flag(
    "dotall",
    "With multiline: the dot matches line ends. Default: true when multiline is on.",
)
.also(&["multiline_dotall"]);

// Which files.

const PATH: Parameter = texts(
    "path",
    "Files or directories to look in, relative to the workspace. A file that is named here passes every filter.",
)
.also(&["paths", "directory", "dir", "dir_path", "include_paths"])
.or("\".\"");
const INCLUDE: Parameter = texts(
    "include",
    "Globs of files to look at, such as *.rs or src/**/*.{ts,tsx}. Without a slash they are compared with the \
     name. What is ignored or hidden stays left out.",
)
.also(&["glob", "glob_pattern", "include_pattern"]);
const EXCLUDE: Parameter =
    texts("exclude", "Globs of files and directories to leave out.").also(&["exclude_globs"]);
const EXCLUDE_DIRS: Parameter =
    texts("exclude_dirs", "Names or globs of directories that are not entered.");
const FILE_TYPE: Parameter =
    texts("file_type", "Kinds of files by ripgrep's names, such as rust, py or ts.")
        .also(&["type"]);
const FILE_TYPE_NOT: Parameter =
    texts("file_type_not", "Kinds of files to leave out.").also(&["type_not"]);
const IGNORE: Parameter = choice(
    "ignore",
    &["all", "git", "none"],
    "Which ignore files count. all: .gitignore and git's others, .ignore, .rgignore; git: only git's.",
)
.or("\"all\"");
const INCLUDE_GITIGNORED: Parameter =
    flag("include_gitignored", "No ignore files count.").also(&["no_ignore"]).spelling();
const RESPECT_GITIGNORE: Parameter =
    flag("respect_git_ignore", "Ignore files count.").also(&["respect_gitignore"]).spelling();
const HIDDEN: Parameter = Parameter::new(
    "hidden",
    Kind::FlagOrAuto,
    "Also names that begin with a dot. auto: only below one that a path or glob names.",
)
.also(&["include_hidden"])
.or("\"auto\"");
const FOLLOW: Parameter = flag("follow", "Follow symlinks that stay in the workspace.")
    .also(&["follow_links", "-L"])
    .or("false");
const MAX_DEPTH: Parameter =
    whole("max_depth", 0, 10_000, "How many directories deep to look.").also(&["depth"]);
const MAX_FILESIZE: Parameter =
    whole("max_filesize", 0, u64::MAX, "Leave out larger files, in bytes; 0: none.");

// How much of an answer.

const OFFSET: Parameter =
    whole("offset", 0, u64::MAX, "How many rows to leave out at the beginning.").or("0");
const CURSOR: Parameter =
    text("cursor", "Where to go on: the cursor of the last answer to the same question.");

const fn limit(default: &'static str) -> Parameter {
    whole("limit", 0, MAX_ROWS, "Rows in one answer; context does not count. 0: 10000.")
        .also(&["head_limit", "total_max_matches", "max_results"])
        .or(default)
}

const fn max_bytes() -> Parameter {
    let (least, most) = (MIN_SEARCH_OUTPUT_BYTES as u64, MAX_SEARCH_OUTPUT_BYTES as u64);
    whole("max_bytes", least, most, "Bytes of text in one answer; whole rows only.").or("102400")
}

const _: () = assert!(MAX_OUTPUT_BYTES == 102_400);

const fn timeout(default: &'static str) -> Parameter {
    whole(
        "timeout_ms",
        100,
        120_000,
        "Milliseconds to look; then what was found until then is answered.",
    )
    .or(default)
}

/// Searches the text of files.
pub const SEARCH: Tool = Tool {
    name: "search",
    about: "Search the text of files by a regular expression. Returns rows path:line:text. Leaves out what .gitignore names, \
            hidden and binary files, and reports that if nothing matches. A long answer ends with a cursor to go on. Use find \
            for names of files. Example: {\"pattern\":\"fn main\",\"include\":\"*.rs\",\"context\":2}.",
    brief: Some(("Search the text of files by a regular expression.", &["pattern", "path"])),
    main: Some("pattern"),
    is_strict: true,
    action: Action::Search,
    offer: Offer::Look,
    of_pi: &["grep"],
    parameters: &[
        PATTERN.required(),
        PATH,
        INCLUDE,
        EXCLUDE,
        EXCLUDE_DIRS.rare(),
        FILE_TYPE,
        FILE_TYPE_NOT.rare(),
        MODE,
        LITERAL,
        WORD,
        WHOLE_LINE,
        DIALECT.rare(),
        CASE,
        CASE_SENSITIVE,
        IGNORE_CASE,
        MULTILINE.or("\"auto\""),
        DOTALL.rare(),
        flag("invert", "Lines that do not match.").also(&["invert_match", "-v"]).or("false").rare(),
        whole("context", 0, 200, "Lines to show around each match.").also(&["context_lines", "-C"]).or("0"),
        whole("before", 0, 200, "Lines to show before each match; else as context.")
            .also(&["before_context_lines", "before_context", "-B"]).rare(),
        whole("after", 0, 200, "Lines to show after each match; else as context.")
            .also(&["after_context_lines", "after_context", "-A"]).rare(),
        choice(
            "output",
            &["content", "only_matching", "files", "files_without", "count", "count_matches"],
            "content: lines; only_matching: the matches alone; files: names of files with a match, or without \
             one; count: lines or matches of each file.",
        )
        .also(&["output_mode"])
        .or("\"content\""),
        flag("names_only", "As output files.").also(&["files_with_matches", "-l"]).spelling(),
        flag("only_matching", "As output only_matching.").also(&["-o"]).spelling(),
        limit("100"),
        OFFSET.rare(),
        CURSOR,
        whole("max_per_file", 1, u64::MAX, "Matching lines of one file.")
            .also(&["max_matches_per_file", "max_count", "-m"]).rare(),
        whole("max_line", 0, 10_000, "Characters shown of a long line, around its first match; 0: all, else at least 40.")
            .or("500").rare(),
        max_bytes().rare(),
        flag("total", "Count all rows, also those that are not shown.").also(&["stats"]).or("true").rare(),
        choice("sort", &["path", "mtime", "none"], "mtime: files changed last come first.").or("\"path\"").rare(),
        IGNORE,
        INCLUDE_GITIGNORED,
        RESPECT_GITIGNORE,
        HIDDEN,
        FOLLOW.rare(),
        choice(
            "binary",
            &["skip", "text", "report"],
            "Files with a NUL byte: left out, searched as text, or told by one row.",
        )
        .or("\"skip\"").rare(),
        text("encoding", "auto: by a byte order mark; none: bytes as they are; or a label such as latin1.")
            .or("\"auto\"").rare(),
        MAX_FILESIZE.rare(),
        MAX_DEPTH.rare(),
        timeout("20000").rare(),
    ],
    ..READS
};

/// Lists files by name.
pub const FIND: Tool = Tool {
    name: "find",
    about: "Find files by name. Returns one path a line. Leaves out what .gitignore names and hidden files, and reports that if \
            nothing matches. A long answer ends with a cursor to go on. Use search for text in files. Example: \
            {\"pattern\":\"src/**/*.ts\"}.",
    brief: Some(("Find files by a glob such as **/*.rs.", &["pattern", "path"])),
    main: Some("pattern"),
    is_strict: true,
    action: Action::Search,
    offer: Offer::Look,
    of_pi: &["ls"],
    parameters: &[
        texts(
            "pattern",
            "Globs, such as *.rs or src/**/test_*.{ts,tsx}. Without a slash they are compared with the name.",
        )
        .also(&["glob", "patterns"])
        .or("\"**/*\""),
        texts("path", "Directories to look in, relative to the workspace.")
            .also(&["paths", "directory", "dir", "dir_path"])
            .or("\".\""),
        flag("fuzzy", "The pattern is some letters of the path in their order; best first.").or("false"),
        Parameter::new(
            "kind",
            Kind::Choices(&["file", "dir", "symlink", "any"]),
            "What to list. Symlinks are not followed unless follow is set.",
        )
        .also(&["kinds", "type"])
        .or("[\"file\",\"symlink\"]"),
        flag("include_directories", "Directories too.").spelling(),
        EXCLUDE,
        EXCLUDE_DIRS.rare(),
        FILE_TYPE.also(&[]),
        FILE_TYPE_NOT.also(&[]).rare(),
        CASE.rare(),
        CASE_SENSITIVE,
        IGNORE_CASE,
        IGNORE,
        INCLUDE_GITIGNORED,
        RESPECT_GITIGNORE,
        HIDDEN,
        FOLLOW.rare(),
        MAX_DEPTH,
        whole("min_size", 0, u64::MAX, "Bytes that a file has at least.").rare(),
        whole("max_size", 0, u64::MAX, "Bytes that a file has at most.").rare(),
        text("modified_after", "An age such as 30m, 2h or 7d, or a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z.")
            .also(&["newer_than", "newer"]),
        text("modified_before", "The same: what was changed before that.").also(&["older_than", "older"]).rare(),
        choice("sort", &["path", "mtime", "size", "score"], "mtime: changed last first; size: largest first; score: best first, of fuzzy.")
            .or("\"path\""),
        flag("long", "Also size, time and mode.").or("false"),
        limit("200"),
        OFFSET.rare(),
        CURSOR,
        timeout("20000").rare(),
    ],
    ..READS
};

/// Replaces text in many files.
pub const REPLACE: Tool = Tool {
    name: "replace",
    about: "Replace text in many files by a regular expression or plain text: in all of them or in none. Call it with \
            dry_run first and then with the plan_id of that answer. Use edit_file for one file. undo takes a replacement \
            back. Example: {\"pattern\":\"old_name\",\"replacement\":\"new_name\",\"mode\":\"word\",\"dry_run\":true}.",
    is_strict: true,
    offer: Offer::Work,
    parameters: &[
        PATTERN,
        text(
            "replacement",
            "What takes the place of each match. $1, ${name} and $$ as in Rust's regex crate, unless mode is \
             literal or template is false. Required with pattern; may be empty.",
        )
        .also(&["new", "with"]),
        PATH,
        INCLUDE,
        EXCLUDE,
        EXCLUDE_DIRS.rare(),
        FILE_TYPE,
        FILE_TYPE_NOT.rare(),
        MODE,
        LITERAL,
        WORD,
        WHOLE_LINE,
        flag("template", "Read $1 and ${name} in the replacement. Default: true unless mode is literal.").rare(),
        DIALECT.or("\"rust\"").rare(),
        CASE,
        CASE_SENSITIVE,
        IGNORE_CASE,
        MULTILINE.or("\"auto\""),
        DOTALL.rare(),
        flag("raw_newlines", "With multiline: keep \\n of the replacement in files that have \\r\\n.").or("false").rare(),
        Parameter::new("line_range", Kind::Lines, "First and last line, of one file."),
        flag("dry_run", "Change nothing: show what would change, and give a plan_id.")
            .also(&["preview"])
            .or("false"),
        text("plan_id", "Make exactly the changes that a dry run showed. No other parameter but expect is needed."),
        Parameter::new(
            "expect",
            Kind::Counts(&["files", "lines", "replacements"]),
            "How many there must be; otherwise nothing is written.",
        ),
        whole("max_files", 1, 20_000, "With more files than this nothing is written.").or("500"),
        whole("max_replacements", 1, 1_000_000, "With more replacements than this nothing is written.").or("10000").rare(),
        whole("max_per_file", 1, u64::MAX, "Replace only the first ones of each file.").rare(),
        choice("diff", &["none", "stat", "unified"], "Default: unified in a dry run, else stat.").rare(),
        choice("backup", &["journal", "none"], "journal: undo can take it back.").or("\"journal\"").rare(),
        flag("skip_binary", "Leave out files with a NUL byte.").or("true").rare(),
        IGNORE,
        INCLUDE_GITIGNORED,
        RESPECT_GITIGNORE,
        HIDDEN,
        MAX_FILESIZE.rare(),
        MAX_DEPTH.rare(),
        max_bytes().rare(),
        timeout("60000").rare(),
    ],
    ..WRITES
};

/// Takes back what other tools changed.
pub const UNDO: Tool = Tool {
    name: "undo",
    about: "Take back changes that write_file, edit_file or replace made, in each file that has not changed since.",
    main: Some("undo_id"),
    is_strict: true,
    action: Action::Other,
    is_destructive: false,
    offer: Offer::Work,
    parameters: &[
        text("undo_id", "Which one, as replace or list told it. Default: the last change.")
            .also(&["id"]),
        text("call_id", "All changes of the call with this id in the journal of calls.").rare(),
        whole(
            "turn",
            0,
            u64::MAX,
            "All changes of this turn of the agent. 0: the newest turn with changes.",
        )
        .rare(),
        flag("list", "Change nothing: list what can be undone.").or("false"),
        flag("diff", "With list: show the changes as diffs.").or("false").rare(),
    ],
    ..WRITES
};
