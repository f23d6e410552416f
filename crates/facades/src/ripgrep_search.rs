//! ripgrep_search, with the name, parameters and result of Radbot and RA.Aid, without running ripgrep.
//!
//! The result is an object, which the text contains as compact JSON: the output that ripgrep would print on a
//! terminal, and its exit code. As in those agents, the end of a long output is kept.

use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_protocol::tools::{BadParameter, RipgrepSearchArguments};
use quackd_sandbox::Root;
use quackd_search::{
    Case, FileHits, Hidden, Pattern, RowKind, Scope, Search, SearchError, SearchOutcome, Stop,
};
use quackd_tools::search_common::text::{ResultNotes, Style, lines, shown};
use quackd_tools::search_common::{
    BadStart, RootTree, SearchToolError, file_type, starts_blocking,
};
use quackd_tools::{CallerDir, Data, Output, WorkspaceCall};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Directories that are not entered unless the search starts there.
const EXCLUDED_DIRS: [&str; 14] = [
    ".git",
    "node_modules",
    "vendor",
    ".venv",
    "__pycache__",
    ".cache",
    "dist",
    "build",
    "env",
    ".env",
    "venv",
    ".idea",
    ".vscode",
    ".ra-aid",
];

/// Maximum number of output lines. The last lines are kept.
const MAX_LINES: usize = 5_000;

/// Size of one page of rows in bytes.
const PAGE_BYTES: usize = 1024 * 1024;

/// Exit codes of ripgrep.
const FOUND: i32 = 0;
const NOTHING: i32 = 1;
const FAILED: i32 = 2;

pub(crate) async fn ripgrep_search(call: WorkspaceCall<'_>) -> Output {
    let params = match RipgrepParams::read(&call) {
        Ok(params) => params,
        Err(error) => return failed(&RipgrepError::Parameter(error)),
    };

    let limit = call.limit();
    match call.search(move |root, stop| params.answer_blocking(root, stop, limit)).await {
        Ok(output) => output,
        Err(SearchToolError::Because(error)) => failed(&error),
        Err(cut_off) => {
            let cut_off = call.failed(&cut_off);
            let Output { text, data, .. } = result(&cut_off.text, FAILED, 0, &[]);
            Output { text, data, ..cut_off }
        }
    }
}

/// Error answer of the tool, in ripgrep's words where it has the same error.
#[derive(Debug, thiserror::Error)]
enum RipgrepError {
    #[error("Error: {0}")]
    Parameter(#[from] BadParameter),
    #[error("Error: Path escapes workspace root")]
    Escapes,
    #[error("{}", not_found(.0))]
    NotFound(Vec<String>),
    #[error("rg: {path}: {reason}")]
    Unusable { path: String, reason: String },
    #[error("{0}")]
    BadPattern(String),
    #[error("unrecognized file type: {0}{near}", near = .1.as_ref().map(|near| format!("; did you mean {near}?")).unwrap_or_default())]
    UnknownType(String, Option<String>),
    #[error("{0}")]
    Refused(SearchError),
}

fn not_found(paths: &[String]) -> String {
    let lines =
        paths.iter().map(|path| format!("rg: {path}: No such file or directory (os error 2)"));
    lines.collect::<Vec<_>>().join("\n")
}

impl From<BadStart> for RipgrepError {
    fn from(error: BadStart) -> Self {
        match error {
            BadStart::Escapes => Self::Escapes,
            BadStart::NotFound(path) => Self::NotFound(vec![path]),
            BadStart::Unusable { path, reason } => Self::Unusable { path, reason },
        }
    }
}

impl From<SearchError> for RipgrepError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::BadPattern { full, .. } => Self::BadPattern(full),
            SearchError::UnknownType { name, nearest } => Self::UnknownType(name, nearest),
            SearchError::StartNotFound(path) => Self::NotFound(vec![shown(&path)]),
            other => Self::Refused(other),
        }
    }
}

/// Parsed arguments.
struct RipgrepParams {
    request: Search,
    paths: Vec<String>,
    directory: CallerDir,
}

impl RipgrepParams {
    fn read(call: &WorkspaceCall<'_>) -> Result<Self, BadParameter> {
        let arguments = RipgrepSearchArguments::of(call.arguments());
        let directory = call.directory();
        let pattern = arguments.pattern?;
        if pattern.is_empty() {
            return Err(BadParameter::Missing("pattern"));
        }

        let mut exclude_dirs: Vec<String> = EXCLUDED_DIRS.map(str::to_owned).into();
        exclude_dirs.extend(arguments.exclude_dirs?);
        let file_type = arguments.file_type?.map(|name| file_type(&name).to_owned());
        let paths = match arguments.include_paths? {
            none if none.is_empty() => vec![directory.path(".").into_owned()],
            paths => paths.iter().map(|path| directory.path(path).into_owned()).collect(),
        };

        let case = match arguments.case_sensitive? {
            Some(false) => Case::Insensitive,
            _ => Case::Sensitive,
        };
        let literal = arguments.fixed_string?;
        let scope = Scope {
            exclude_dirs,
            types: file_type.into_iter().collect(),
            hidden: match arguments.include_hidden? {
                Some(true) => Hidden::Show,
                Some(false) => Hidden::Leave,
                None => Hidden::Auto,
            },
            follow: arguments.follow_links?,
            ..Scope::default()
        };

        let request = Search {
            scope,
            before: arguments.before_context_lines?,
            after: arguments.after_context_lines?,
            max_bytes: PAGE_BYTES,
            explain_empty: true,
            ..Search::new(Pattern { literal, case, ..Pattern::new(pattern) }, call.stop())
        };
        Ok(Self { request, paths, directory: directory.clone() })
    }

    /// Reads all pages, because the answer contains the last lines.
    fn answer_blocking(
        mut self,
        root: &Root,
        stop: Stop,
        limit: Duration,
    ) -> Result<Output, RipgrepError> {
        let starts = Starts::look_blocking(root, &self.paths)?;
        self.request.scope.starts.clone_from(&starts.real);
        self.request.stop = stop;

        let has_context = self.request.before != 0 || self.request.after != 0;
        let mut output = OutputTail { has_context, ..OutputTail::default() };
        let mut n_rows = 0;
        loop {
            let outcome = quackd_search::search(&self.request, &RootTree(root))?;
            n_rows += outcome.shown;
            output.push(&outcome.files, &starts, &self.directory);

            let more = outcome.cursor.clone().filter(|_| outcome.truncated && !outcome.timed_out);
            let Some(cursor) = more else {
                return Ok(answer(output, n_rows, &outcome, &starts.missing, limit));
            };
            self.request.cursor = Some(cursor);
            self.request.explain_empty = false;
        }
    }
}

/// The include paths of a call.
#[derive(Debug, Default)]
struct Starts {
    /// Start paths of the search, with every link resolved.
    real: Vec<PathBuf>,
    /// Paths without links.
    own: Vec<PathBuf>,
    /// For a path through a link: the resolved path, and the path as ripgrep shows it.
    links: Vec<(PathBuf, PathBuf)>,
    /// Paths that do not exist. The search continues without them, as in ripgrep.
    missing: Vec<String>,
}

impl Starts {
    /// Resolves the include paths. Fails if none exists, or if one cannot be searched.
    fn look_blocking(root: &Root, paths: &[String]) -> Result<Self, RipgrepError> {
        let mut starts = Self::default();
        for path in paths {
            let real = match starts_blocking(root, std::slice::from_ref(path)) {
                Ok(real) => real,
                Err(BadStart::NotFound(path)) => {
                    starts.missing.push(path);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };

            let named =
                Path::new(path).strip_prefix(root.path()).unwrap_or_else(|_| Path::new(path));
            let named: PathBuf =
                named.components().filter(|one| *one != Component::CurDir).collect();
            // Files below a path with `..` are shown by their real paths.
            let is_plain = named.components().all(|one| matches!(one, Component::Normal(_)));
            for real in real {
                if is_plain && real != named {
                    starts.links.push((real.clone(), named.clone()));
                } else {
                    starts.own.push(real.clone());
                }
                starts.real.push(real);
            }
        }

        if starts.real.is_empty() {
            return Err(RipgrepError::NotFound(starts.missing));
        }
        Ok(starts)
    }

    /// Returns the path of a file as ripgrep shows it: under a link in the include paths, by the name of the
    /// link. A file that is also under a named directory is listed once, by its real path.
    fn name<'a>(&self, file: &'a Path) -> Cow<'a, Path> {
        let is_covered = self.own.iter().any(|start| file.starts_with(start));
        let mut links = self.links.iter().filter(|_| !is_covered);
        let below = links.find_map(|(real, link)| Some((link, file.strip_prefix(real).ok()?)));
        match below {
            None => Cow::Borrowed(file),
            // Joining an empty path would add a separator.
            Some((link, rest)) if rest.as_os_str().is_empty() => Cow::Owned(link.clone()),
            Some((link, rest)) => Cow::Owned(link.join(rest)),
        }
    }
}

/// The last lines of an output that is added page by page.
#[derive(Default)]
struct OutputTail {
    lines: VecDeque<String>,
    n_left_out: u64,
    n_bytes: usize,
    has_context: bool,
    /// The last line added, so that a page that starts in the middle of a file continues there.
    last: Option<(PathBuf, u64)>,
}

impl OutputTail {
    fn push(&mut self, files: &[FileHits], starts: &Starts, directory: &CallerDir) {
        let style = Style { gaps: false, carriage_returns: false };
        for file in files {
            let known = self.last.take().filter(|(path, _)| **path == *file.path);
            let mut last_line = known.as_ref().map(|(_, line)| *line);
            if known.is_none() {
                self.line(shown(&directory.shown(&starts.name(&file.path))));
            }

            for row in &file.rows {
                // The page before has this row already.
                if last_line.is_some_and(|last| row.line <= last) {
                    continue;
                }

                if self.has_context && row.after_gap {
                    self.line("--".to_owned());
                }
                let mark = if row.kind == RowKind::Match { ':' } else { '-' };
                for (number, line) in (row.line..).zip(lines(row, style)) {
                    self.line(format!("{number}{mark}{line}"));
                }
                last_line = Some(row.end_line);
            }
            self.last = last_line.map(|line| (Path::new(&*file.path).to_path_buf(), line));
        }
    }

    /// Adds a line and removes the first lines beyond the limits.
    fn line(&mut self, line: String) {
        self.n_bytes += line.len() + 1;
        self.lines.push_back(line);
        while MAX_LINES < self.lines.len()
            || (MAX_OUTPUT_BYTES < self.n_bytes && 1 < self.lines.len())
        {
            let Some(first) = self.lines.pop_front() else { return };
            self.n_bytes -= first.len() + 1;
            self.n_left_out += 1;
        }
    }

    /// Returns the text. A single line that is too long is cut at its start.
    fn text(self) -> String {
        let mut text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        let begin = text.len().saturating_sub(MAX_OUTPUT_BYTES);
        let text = text.split_off(text.ceil_char_boundary(begin));
        match self.n_left_out {
            0 => text,
            n_lines => format!("[{n_lines} lines of output truncated]\n{text}"),
        }
    }
}

fn answer(
    mut tail: OutputTail,
    n_rows: u64,
    outcome: &SearchOutcome,
    missing: &[String],
    limit: Duration,
) -> Output {
    for path in missing {
        tail.line(not_found(std::slice::from_ref(path)));
    }

    let is_cut = tail.n_left_out != 0;
    // Without the hints that refer to quackd's own tool.
    let mut notes: Vec<String> =
        outcome.notes.iter().map(|note| format!("[Note: {note}]")).collect();
    notes.extend(ResultNotes::of_search(outcome).only_warnings().lines(limit));

    let code = match n_rows {
        _ if !missing.is_empty() => FAILED,
        0 => NOTHING,
        _ => FOUND,
    };
    let mut output = result(&tail.text(), code, n_rows, &notes);
    output.report.truncated = is_cut || outcome.truncated;
    output.report.timed_out = outcome.timed_out;
    output
}

fn failed(error: &RipgrepError) -> Output {
    result(&error.to_string(), FAILED, 0, &[])
}

/// The three members that callers expect, and two additional ones, in this order.
#[derive(Debug, Serialize)]
struct RipgrepResult<'a> {
    output: &'a str,
    return_code: i32,
    success: bool,
    matches: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Returns the answer of a search with the exit code `return_code`.
fn result(output: &str, return_code: i32, matches: u64, notes: &[String]) -> Output {
    let note = (!notes.is_empty()).then(|| notes.join("\n"));
    let result =
        RipgrepResult { output, return_code, success: return_code == FOUND, matches, note };

    // Texts and numbers always serialize.
    let text = serde_json::to_string(&result).unwrap_or_default();
    let mut answer = Output::success(text);
    answer.report.is_error = return_code == FAILED;
    answer.data = serde_json::to_value(&result).ok().map(Data::from);
    answer
}
