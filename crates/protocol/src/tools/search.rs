//! Parameters of quackd's own search tools: search, find, replace, undo.

use super::arguments::{arguments, group};
use super::forms::{Checked, Counts, Grouped, Limit, Lines, MayBeEmpty};
use super::row::{Action, Kind, Offer, Parameter, READS, Tool, WRITES, flag, text, whole};
use crate::limits::{MAX_OUTPUT_BYTES, MAX_ROWS, MAX_SEARCH_OUTPUT_BYTES, MIN_SEARCH_OUTPUT_BYTES};

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[SEARCH, FIND, REPLACE, UNDO];

const fn texts(about: &'static str) -> Parameter {
    Parameter::new(Kind::Texts, about)
}

const fn choice(words: &'static [&'static str], about: &'static str) -> Parameter {
    Parameter::new(Kind::Choice(words), about)
}

// How a pattern is read.

const PATTERN: Parameter = texts(
    "A regular expression in the syntax of Rust's regex crate (as ripgrep has it), or several: any of them counts.",
)
.also(&["query", "regex"]);
const MODE: Parameter = choice(
    &["regex", "literal", "word", "line"],
    "regex; literal: the pattern is plain text; word: a regex for whole words; line: a regex for whole lines.",
)
.spelled(&[("fixed", "literal"), ("fixed_strings", "literal")])
.or("\"regex\"");
const LITERAL: Parameter =
    flag("The pattern is plain text.").also(&["fixed_strings", "fixed_string", "-F"]).spelling();
const WORD: Parameter =
    flag("Whole words only.").also(&["whole_word", "word_regexp", "-w"]).spelling();
const WHOLE_LINE: Parameter = flag("Whole lines only.").also(&["line_regexp", "-x"]).spelling();
const DIALECT: Parameter = choice(
    &["auto", "rust", "bre"],
    "rust; bre: a POSIX basic regular expression as grep reads it; auto: rust, and bre if that finds nothing and \
     the pattern looks like one.",
)
.spelled(&[("basic", "bre"), ("ere", "rust")])
.or("\"auto\"");
const CASE: Parameter = choice(
    &["sensitive", "insensitive", "smart"],
    "smart: insensitive unless the pattern has a capital letter.",
)
.spelled(&[("ignore", "insensitive")])
.or("\"sensitive\"");
const CASE_SENSITIVE: Parameter = flag("Case matters.").spelling();
const IGNORE_CASE: Parameter = flag("Case does not matter.").also(&["ignoreCase", "-i"]).spelling();
const MULTILINE: Parameter = Parameter::new(
    Kind::ChoiceOrFlag(&["off", "on", "auto"], "on", "off"),
    "Whether a match may cross lines. auto: if the pattern has a \\n.",
);
const DOTALL: Parameter =
    flag("With multiline: the dot matches line ends. Default: true when multiline is on.")
        .also(&["multiline_dotall"]);

// Which files.

const PATH: Parameter = texts(
    "Files or directories to look in, relative to the workspace. A file that is named here passes every filter.",
)
.also(&["paths", "directory", "dir", "dir_path", "include_paths"])
.or("\".\"");
const INCLUDE: Parameter = texts(
    "Globs of files to look at, such as *.rs or src/**/*.{ts,tsx}. Without a slash they are compared with the \
     name. What is ignored or hidden stays left out.",
)
.also(&["glob", "glob_pattern", "include_pattern"]);
const EXCLUDE: Parameter =
    texts("Globs of files and directories to leave out.").also(&["exclude_globs"]);
const EXCLUDE_DIRS: Parameter = texts("Names or globs of directories that are not entered.");
const FILE_TYPE: Parameter =
    texts("Kinds of files by ripgrep's names, such as rust, py or ts.").also(&["type"]);
const FILE_TYPE_NOT: Parameter = texts("Kinds of files to leave out.").also(&["type_not"]);
const IGNORE: Parameter = choice(
    &["all", "git", "none"],
    "Which ignore files count. all: .gitignore and git's others, .ignore, .rgignore; git: only git's.",
)
.or("\"all\"");
const INCLUDE_GITIGNORED: Parameter =
    flag("No ignore files count.").also(&["no_ignore"]).spelling();
const RESPECT_GITIGNORE: Parameter =
    flag("Ignore files count.").also(&["respect_gitignore"]).spelling();
const HIDDEN: Parameter = Parameter::new(
    Kind::FlagOrAuto,
    "Also names that begin with a dot. auto: only below one that a path or glob names.",
)
.also(&["include_hidden"])
.or("\"auto\"");
const FOLLOW: Parameter =
    flag("Follow symlinks that stay in the workspace.").also(&["follow_links", "-L"]).or("false");
const MAX_DEPTH: Parameter =
    whole(0, 10_000, "How many directories deep to look.").also(&["depth"]);
const MAX_FILESIZE: Parameter = whole(0, u64::MAX, "Leave out larger files, in bytes; 0: none.");

// How much of an answer.

const OFFSET: Parameter =
    whole(0, u64::MAX, "How many rows to leave out at the beginning.").or("0");
const CURSOR: Parameter =
    text("Where to go on: the cursor of the last answer to the same question.");

const fn limit(default: &'static str) -> Parameter {
    whole(0, MAX_ROWS, "Rows in one answer; context does not count. 0: 10000.")
        .also(&["head_limit", "total_max_matches", "max_results"])
        .or(default)
}

const fn max_bytes() -> Parameter {
    let (least, most) = (MIN_SEARCH_OUTPUT_BYTES as u64, MAX_SEARCH_OUTPUT_BYTES as u64);
    whole(least, most, "Bytes of text in one answer; whole rows only.").or("102400")
}

const _: () = assert!(MAX_OUTPUT_BYTES == 102_400);

const fn timeout(default: &'static str) -> Parameter {
    whole(100, 120_000, "Milliseconds to look; then what was found until then is answered.")
        .or(default)
}

group! {
    /// Meaning of the pattern of a search or a replacement.
    PatternArguments with { letters: CaseArguments } {
        pattern: Checked<Vec<String>>,
        mode: Checked<Option<&'static str>>,
        literal: Checked<bool>,
        word: Checked<bool>,
        whole_line: Checked<bool>,
        dialect: Checked<&'static str>,
        multiline: Checked<&'static str>,
        dotall: Checked<Option<bool>>,
    }
}

group! {
    /// Whether case matters.
    CaseArguments {
        case: Checked<Option<&'static str>>,
        case_sensitive: Checked<Option<bool>>,
        ignore_case: Checked<Option<bool>>,
    }
}

group! {
    /// The files of the search. `find` has no `include` and no `max_filesize`.
    FileArguments {
        path: Checked<Vec<String>>,
        include: Checked<Vec<String>>,
        exclude: Checked<Vec<String>>,
        exclude_dirs: Checked<Vec<String>>,
        file_type: Checked<Vec<String>>,
        file_type_not: Checked<Vec<String>>,
        ignore: Checked<Option<&'static str>>,
        include_gitignored: Checked<Option<bool>>,
        respect_git_ignore: Checked<Option<bool>>,
        hidden: Checked<Option<bool>>,
        follow: Checked<bool>,
        max_depth: Checked<Option<usize>>,
        max_filesize: Checked<Option<u64>>,
        sort: Checked<Option<&'static str>>,
    }
}

group! {
    /// A replacement that is not planned yet.
    NewPlanArguments with { what: PatternArguments, files: FileArguments } {
        replacement: Checked<String>,
        template: Checked<Option<bool>>,
        line_range: Checked<Option<Lines>>,
        max_files: Checked<usize>,
        max_replacements: Checked<u64>,
        max_per_file: Checked<Option<u64>>,
        skip_binary: Checked<bool>,
        raw_newlines: Checked<bool>,
    }
}

arguments! {
    /// Arguments of `search`.
    SearchArguments of SEARCH with { what: PatternArguments, files: FileArguments } {
        pattern: Grouped = PATTERN.required(),
        path: Grouped = PATH,
        include: Grouped = INCLUDE,
        exclude: Grouped = EXCLUDE,
        exclude_dirs: Grouped = EXCLUDE_DIRS.rare(),
        file_type: Grouped = FILE_TYPE,
        file_type_not: Grouped = FILE_TYPE_NOT.rare(),
        mode: Grouped = MODE,
        literal: Grouped = LITERAL,
        word: Grouped = WORD,
        whole_line: Grouped = WHOLE_LINE,
        dialect: Grouped = DIALECT.rare(),
        case: Grouped = CASE,
        case_sensitive: Grouped = CASE_SENSITIVE,
        ignore_case: Grouped = IGNORE_CASE,
        multiline: Grouped = MULTILINE.or("\"auto\""),
        dotall: Grouped = DOTALL.rare(),
        invert: Checked<bool> = flag("Lines that do not match.").also(&["invert_match", "-v"]).or("false").rare(),
        context: Checked<usize> = whole(0, 200, "Lines to show around each match.").also(&["context_lines", "-C"]).or("0"),
        before: Checked<Option<usize>> = whole(0, 200, "Lines to show before each match; else as context.")
            .also(&["before_context_lines", "before_context", "-B"]).rare(),
        after: Checked<Option<usize>> = whole(0, 200, "Lines to show after each match; else as context.")
            .also(&["after_context_lines", "after_context", "-A"]).rare(),
        output: Checked<Option<&'static str>> = choice(
            &["content", "only_matching", "files", "files_without", "count", "count_matches"],
            "content: lines; only_matching: the matches alone; files: names of files with a match, or without \
             one; count: lines or matches of each file.",
        )
        .also(&["output_mode"])
        .spelled(&[
            ("lines", "content"),
            ("files_with_matches", "files"),
            ("files_without_match", "files_without"),
            ("files_without_matches", "files_without"),
            ("count_lines", "count"),
        ])
        .or("\"content\""),
        names_only: Checked<bool> = flag("As output files.").also(&["files_with_matches", "-l"]).spelling(),
        only_matching: Checked<bool> = flag("As output only_matching.").also(&["-o"]).spelling(),
        limit: Checked<Limit> = limit("100"),
        offset: Checked<u64> = OFFSET.rare(),
        cursor: Checked<Option<String>> = CURSOR,
        max_per_file: Checked<Option<u64>> = whole(1, u64::MAX, "Matching lines of one file.")
            .also(&["max_matches_per_file", "max_count", "-m"]).rare(),
        max_line: Checked<usize> = whole(0, 10_000, "Characters shown of a long line, around its first match; 0: all, else at least 40.")
            .or("500").rare(),
        max_bytes: Checked<usize> = max_bytes().rare(),
        total: Checked<bool> = flag("Count all rows, also those that are not shown.").also(&["stats"]).or("true").rare(),
        sort: Grouped = choice(&["path", "mtime", "none"], "mtime: files changed last come first.")
            .spelled(&[("modified", "mtime")]).or("\"path\"").rare(),
        ignore: Grouped = IGNORE,
        include_gitignored: Grouped = INCLUDE_GITIGNORED,
        respect_git_ignore: Grouped = RESPECT_GITIGNORE,
        hidden: Grouped = HIDDEN,
        follow: Grouped = FOLLOW.rare(),
        binary: Checked<Option<&'static str>> = choice(
            &["skip", "text", "report"],
            "Files with a NUL byte: left out, searched as text, or told by one row.",
        )
        .or("\"skip\"").rare(),
        encoding: Checked<Option<String>> = text("auto: by a byte order mark; none: bytes as they are; or a label such as latin1.")
            .or("\"auto\"").rare(),
        max_filesize: Grouped = MAX_FILESIZE.rare(),
        max_depth: Grouped = MAX_DEPTH.rare(),
        timeout_ms: Checked<Option<u64>> = timeout("20000").rare(),
    }
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
    parameters: SearchArguments::PARAMETERS,
    ..READS
};

arguments! {
    /// Arguments of `find`.
    FindArguments of FIND with { letters: CaseArguments, files: FileArguments } {
        pattern: Checked<Option<Vec<String>>> = texts(
            "Globs, such as *.rs or src/**/test_*.{ts,tsx}. Without a slash they are compared with the name.",
        )
        .also(&["glob", "patterns"])
        .or("\"**/*\""),
        path: Grouped = texts("Directories to look in, relative to the workspace.")
            .also(&["paths", "directory", "dir", "dir_path"])
            .or("\".\""),
        fuzzy: Checked<bool> = flag("The pattern is some letters of the path in their order; best first.").or("false"),
        kind: Checked<Vec<&'static str>> = Parameter::new(
            Kind::Choices(&["file", "dir", "symlink", "any"]),
            "What to list. Symlinks are not followed unless follow is set.",
        )
        .also(&["kinds", "type"])
        .spelled(&[
            ("f", "file"),
            ("files", "file"),
            ("d", "dir"),
            ("dirs", "dir"),
            ("directory", "dir"),
            ("directories", "dir"),
            ("l", "symlink"),
            ("link", "symlink"),
            ("symlinks", "symlink"),
            ("all", "any"),
        ])
        .or("[\"file\",\"symlink\"]"),
        include_directories: Checked<bool> = flag("Directories too.").spelling(),
        exclude: Grouped = EXCLUDE,
        exclude_dirs: Grouped = EXCLUDE_DIRS.rare(),
        file_type: Grouped = FILE_TYPE.also(&[]),
        file_type_not: Grouped = FILE_TYPE_NOT.also(&[]).rare(),
        case: Grouped = CASE.rare(),
        case_sensitive: Grouped = CASE_SENSITIVE,
        ignore_case: Grouped = IGNORE_CASE,
        ignore: Grouped = IGNORE,
        include_gitignored: Grouped = INCLUDE_GITIGNORED,
        respect_git_ignore: Grouped = RESPECT_GITIGNORE,
        hidden: Grouped = HIDDEN,
        follow: Grouped = FOLLOW.rare(),
        max_depth: Grouped = MAX_DEPTH,
        min_size: Checked<Option<u64>> = whole(0, u64::MAX, "Bytes that a file has at least.").rare(),
        max_size: Checked<Option<u64>> = whole(0, u64::MAX, "Bytes that a file has at most.").rare(),
        modified_after: Checked<Option<String>> = text("An age such as 30m, 2h or 7d, or a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z.")
            .also(&["newer_than", "newer"]),
        modified_before: Checked<Option<String>> = text("The same: what was changed before that.").also(&["older_than", "older"]).rare(),
        sort: Checked<Option<&'static str>> = choice(&["path", "mtime", "size", "score"], "mtime: changed last first; size: largest first; score: best first, of fuzzy.")
            .spelled(&[("modified", "mtime")]).or("\"path\""),
        long: Checked<bool> = flag("Also size, time and mode.").or("false"),
        limit: Checked<Limit> = limit("200"),
        offset: Checked<u64> = OFFSET.rare(),
        cursor: Checked<Option<String>> = CURSOR,
        timeout_ms: Checked<Option<u64>> = timeout("20000").rare(),
    }
}

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
    parameters: FindArguments::PARAMETERS,
    ..READS
};

arguments! {
    /// Arguments of `replace`.
    ReplaceArguments of REPLACE with { plan: NewPlanArguments } {
        pattern: Grouped = PATTERN,
        replacement: Grouped = text(
            "What takes the place of each match. $1, ${name} and $$ as in Rust's regex crate, unless mode is \
             literal or template is false. Required with pattern; may be empty.",
        )
        .also(&["new", "with"]),
        path: Grouped = PATH,
        include: Grouped = INCLUDE,
        exclude: Grouped = EXCLUDE,
        exclude_dirs: Grouped = EXCLUDE_DIRS.rare(),
        file_type: Grouped = FILE_TYPE,
        file_type_not: Grouped = FILE_TYPE_NOT.rare(),
        mode: Grouped = MODE,
        literal: Grouped = LITERAL,
        word: Grouped = WORD,
        whole_line: Grouped = WHOLE_LINE,
        template: Grouped = flag("Read $1 and ${name} in the replacement. Default: true unless mode is literal.").rare(),
        dialect: Grouped = DIALECT.or("\"rust\"").rare(),
        case: Grouped = CASE,
        case_sensitive: Grouped = CASE_SENSITIVE,
        ignore_case: Grouped = IGNORE_CASE,
        multiline: Grouped = MULTILINE.or("\"auto\""),
        dotall: Grouped = DOTALL.rare(),
        raw_newlines: Grouped = flag("With multiline: keep \\n of the replacement in files that have \\r\\n.").or("false").rare(),
        line_range: Grouped = Parameter::new(Kind::Lines, "First and last line, of one file."),
        dry_run: Checked<bool> = flag("Change nothing: show what would change, and give a plan_id.")
            .also(&["preview"])
            .or("false"),
        plan_id: Checked<Option<String>> = text("Make exactly the changes that a dry run showed. No other parameter but expect is needed."),
        expect: Checked<Counts> = Parameter::new(
            Kind::Counts(Counts::NAMES),
            "How many there must be; otherwise nothing is written.",
        ),
        max_files: Grouped = whole(1, 20_000, "With more files than this nothing is written.").or("500"),
        max_replacements: Grouped = whole(1, 1_000_000, "With more replacements than this nothing is written.").or("10000").rare(),
        max_per_file: Grouped = whole(1, u64::MAX, "Replace only the first ones of each file.").rare(),
        diff: Checked<Option<&'static str>> = choice(&["none", "stat", "unified"], "Default: unified in a dry run, else stat.").rare(),
        backup: Checked<Option<&'static str>> = choice(&["journal", "none"], "journal: undo can take it back.").or("\"journal\"").rare(),
        skip_binary: Grouped = flag("Leave out files with a NUL byte.").or("true").rare(),
        ignore: Grouped = IGNORE,
        include_gitignored: Grouped = INCLUDE_GITIGNORED,
        respect_git_ignore: Grouped = RESPECT_GITIGNORE,
        hidden: Grouped = HIDDEN,
        max_filesize: Grouped = MAX_FILESIZE.rare(),
        max_depth: Grouped = MAX_DEPTH.rare(),
        max_bytes: Checked<Option<usize>> = max_bytes().rare(),
        timeout_ms: Checked<Option<u64>> = timeout("60000").rare(),
    }
}

/// Replaces text in many files.
pub const REPLACE: Tool = Tool {
    name: "replace",
    about: "Replace text in many files by a regular expression or plain text: in all of them or in none. Call it with \
            dry_run first and then with the plan_id of that answer. Use edit_file for one file. undo takes a replacement \
            back. Example: {\"pattern\":\"old_name\",\"replacement\":\"new_name\",\"mode\":\"word\",\"dry_run\":true}.",
    is_strict: true,
    offer: Offer::Work,
    parameters: ReplaceArguments::PARAMETERS,
    ..WRITES
};

arguments! {
    /// Arguments of `undo`.
    UndoArguments of UNDO {
        undo_id: Checked<MayBeEmpty> = text("Which one, as replace or list told it. Default: the last change.")
            .also(&["id"]),
        call_id: Checked<Option<String>> = text("All changes of the call with this id in the journal of calls.").rare(),
        turn: Checked<Option<u64>> = whole(
            0,
            u64::MAX,
            "All changes of this turn of the agent. 0: the newest turn with changes.",
        )
        .rare(),
        list: Checked<bool> = flag("Change nothing: list what can be undone.").or("false"),
        diff: Checked<bool> = flag("With list: show the changes as diffs.").or("false").rare(),
    }
}

/// Takes back what other tools changed.
pub const UNDO: Tool = Tool {
    name: "undo",
    about: "Take back changes that write_file, edit_file or replace made, in each file that has not changed since.",
    main: Some("undo_id"),
    is_strict: true,
    action: Action::Other,
    is_destructive: false,
    offer: Offer::Work,
    parameters: UndoArguments::PARAMETERS,
    ..WRITES
};
