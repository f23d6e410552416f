//! grep_search: returns matching lines in the workspace as `path:line:text`.

use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_protocol::tools::{BadParameter, Checked, GrepSearchArguments};
use quackd_sandbox::Root;
use quackd_search::{
    Case, Dialect, Hidden, Ignore, Multiline, Note, OutputMode, Pattern, Scope, Search,
    SearchError, SearchOutcome, Stop,
};
use quackd_tools::search_common::text::{self, Style};
use quackd_tools::search_common::{BadStart, RootTree, starts_blocking};
use quackd_tools::{CallerDir, Output, TRUNCATED, WorkspaceCall};
use serde_json::json;
use std::time::{Duration, Instant};

/// Directories that a search does not enter unless it starts there.
pub(crate) const EXCLUDED_DIRS: [&str; 3] = [".git", ".build", "node_modules"];

const NO_MATCHES: &str = "No matches found";

pub(crate) async fn grep_search(call: WorkspaceCall<'_>) -> Output {
    let params = match GrepParams::read(&call) {
        Ok(params) => params,
        Err(error) => return Output::error(error),
    };
    match call.search(move |root, stop| params.answer_blocking(root, stop)).await {
        Ok(output) => output,
        Err(error) => call.failed(&error),
    }
}

/// Error answer of the tool, in the words of grep.
#[derive(Debug, thiserror::Error)]
enum GrepError {
    #[error("Path escapes workspace root")]
    Escapes,
    #[error("grep failed with exit code 2: grep: {0}: No such file or directory")]
    NotFound(String),
    #[error("grep failed with exit code 2: grep: {path}: {reason}")]
    BadPath { path: String, reason: String },
    #[error("grep failed with exit code 2: invalid include pattern '{glob}': {reason}")]
    BadInclude { glob: String, reason: String },
    #[error("grep failed with exit code 2: {0}")]
    BadRequest(SearchError),
}

impl From<BadStart> for GrepError {
    fn from(error: BadStart) -> Self {
        match error {
            BadStart::Escapes => Self::Escapes,
            BadStart::NotFound(path) => Self::NotFound(path),
            BadStart::Unusable { path, reason } => Self::BadPath { path, reason },
        }
    }
}

/// Parsed arguments.
struct GrepParams {
    request: Search,
    path: String,
    directory: CallerDir,
    /// Whether the glob can match no file.
    finds_nothing: bool,
    limit: Duration,
}

impl GrepParams {
    fn read(call: &WorkspaceCall<'_>) -> Result<Self, BadParameter> {
        // A checked argument with another form counts as absent, as clients of this tool expect.
        let arguments = GrepSearchArguments::of(call.arguments());
        let directory = call.directory();
        let pattern = arguments.pattern.ok_or(BadParameter::Missing("pattern"))?;
        let path = directory.path_of(arguments.path);

        // An empty glob is valid and matches no file.
        let include = arguments.include.0;
        let finds_nothing = include.as_deref() == Some("");
        let scope = Scope {
            include: include.map(|glob| directory.glob(&glob)).into_iter().collect(),
            exclude: arguments.exclude.unwrap_or_default(),
            exclude_dirs: EXCLUDED_DIRS.map(str::to_owned).into(),
            ignore: if call.respects_ignore_files() && !arguments.no_ignore.unwrap_or_default() {
                Ignore::All
            } else {
                Ignore::None
            },
            hidden: Hidden::Show,
            vcs_dirs: true,
            ..Scope::default()
        };

        let context = arguments.context.unwrap_or_default();
        let lines = |lines: Checked<Option<u64>>| {
            let lines = lines.unwrap_or_default().or(context).unwrap_or_default();
            usize::try_from(lines).unwrap_or_default()
        };

        let max_rows = arguments.total_max_matches.unwrap_or_default().unwrap_or_default();
        let literal = arguments.fixed_strings.unwrap_or_default();
        let case = match arguments.case_sensitive {
            Ok(Some(false)) => Case::Insensitive,
            _ => Case::Sensitive,
        };

        let request = Search {
            scope,
            before: lines(arguments.before),
            after: lines(arguments.after),
            output: if arguments.names_only.unwrap_or_default() {
                OutputMode::Files
            } else {
                OutputMode::Lines
            },
            limit: usize::try_from(max_rows).unwrap_or_default(),
            max_per_file: arguments.max_matches_per_file.unwrap_or_default(),
            // One byte more than the limit, to detect a last row that does not fit.
            max_bytes: MAX_OUTPUT_BYTES + 1,
            ..Search::new(read_pattern(pattern, literal, case), call.stop())
        };
        Ok(Self {
            request,
            path: path.unwrap_or_else(|| directory.path(".").into_owned()),
            directory: directory.clone(),
            finds_nothing,
            limit: call.limit(),
        })
    }

    fn answer_blocking(mut self, root: &Root, stop: Stop) -> Result<Output, GrepError> {
        self.request.scope.starts = starts_blocking(root, std::slice::from_ref(&self.path))?;
        self.request.stop = stop;

        if self.finds_nothing {
            // Only the pattern is checked: the deadline has passed before the first file.
            self.request.stop.deadline = Instant::now();
        }
        let mut outcome = self.search(root)?;

        // 10,000 short rows may be smaller than the limit of the answer.
        while outcome.truncated && !self.is_full(&outcome) {
            let Some(cursor) = outcome.cursor.take() else { break };
            self.request.cursor = Some(cursor);
            add(&mut outcome, self.search(root)?);
        }

        if self.finds_nothing {
            outcome = SearchOutcome::default();
        }
        Ok(self.output(&outcome))
    }

    fn search(&self, root: &Root) -> Result<SearchOutcome, GrepError> {
        let outcome = quackd_search::search(&self.request, &RootTree(root));
        let mut outcome = outcome.map_err(|error| match error {
            SearchError::StartNotFound(_) => GrepError::NotFound(self.path.clone()),
            SearchError::BadGlob { glob, reason } => GrepError::BadInclude { glob, reason },
            other => GrepError::BadRequest(other),
        })?;
        self.directory.show_search(&mut outcome);
        Ok(outcome)
    }

    /// Whether the answer has no space for more rows. Context across pages is not worth the effort.
    fn is_full(&self, outcome: &SearchOutcome) -> bool {
        let Search { limit, before, after, .. } = self.request;
        limit != 0 || before != 0 || after != 0 || self.rendered(outcome).1
    }

    /// Returns the rows as text, and whether they are cut.
    fn rendered(&self, outcome: &SearchOutcome) -> (String, bool) {
        let style = Style {
            gaps: self.request.before != 0 || self.request.after != 0,
            carriage_returns: true,
        };
        let (mut text, mut is_cut) = (String::new(), false);
        let mut take = |row: &str| {
            is_cut = !push(&mut text, row);
            !is_cut
        };

        match self.request.output {
            OutputMode::Files => text::files(outcome, OutputMode::Files, &mut take),
            _ => text::rows(&outcome.files, style, &mut take),
        }
        (text, is_cut)
    }

    fn output(&self, outcome: &SearchOutcome) -> Output {
        let (mut text, is_cut) = self.rendered(outcome);
        let truncated = outcome.truncated || is_cut;
        let notes = notes(outcome, truncated, self.limit);

        if text.is_empty() {
            NO_MATCHES.clone_into(&mut text);
        }
        if !notes.is_empty() {
            // A note starts on a new line: the last row's newline ends the row.
            text.truncate(text.strip_suffix('\n').unwrap_or(&text).len());
            for note in notes {
                text.push('\n');
                text.push_str(&note);
            }
        }

        let mut output = Output::success(text);
        output.report.truncated = truncated;
        output.report.timed_out = outcome.timed_out;
        output.data = Some(data(outcome, truncated).into());
        output
    }
}

/// Adds the next page. Files that both pages skipped are counted once.
fn add(outcome: &mut SearchOutcome, next: SearchOutcome) {
    outcome.files.extend(next.files);
    outcome.shown += next.shown;
    outcome.truncated = next.truncated;
    outcome.timed_out |= next.timed_out;
    outcome.cursor = next.cursor.filter(|_| next.shown != 0);
    outcome.files_searched = outcome.files_searched.max(next.files_searched);

    let (all, more) = (&mut outcome.skipped, next.skipped);
    all.binary = all.binary.max(more.binary);
    all.unreadable = all.unreadable.max(more.unreadable);
    all.too_long = all.too_long.max(more.too_long);
    if outcome.n_unfinished < next.n_unfinished {
        (outcome.unfinished, outcome.n_unfinished) = (next.unfinished, next.n_unfinished);
    }
}

/// Parses the pattern. Its lines are alternatives, as for grep, but `\n` in one line matches a line end.
fn read_pattern(pattern: String, literal: bool, case: Case) -> Pattern {
    Pattern {
        literal,
        retry_as_basic: true,
        case,
        multiline: if pattern.contains('\n') { Multiline::Off } else { Multiline::Auto },
        ..Pattern::new(pattern)
    }
}

/// Appends a row. Returns false if it exceeds the limit of the answer. A first row that is too long is cut.
fn push(text: &mut String, row: &str) -> bool {
    let fits = text.len() + row.len() <= MAX_OUTPUT_BYTES;
    if fits {
        text.push_str(row);
    } else if text.is_empty() {
        text.push_str(row.split_at(row.floor_char_boundary(MAX_OUTPUT_BYTES)).0);
    }
    fits
}

/// Returns the notes that explain the rows. Without them, an empty or short result is worse than an error.
fn notes(outcome: &SearchOutcome, truncated: bool, limit: Duration) -> Vec<String> {
    let mut notes = Vec::new();
    if truncated {
        notes.push(TRUNCATED.to_owned());
    }

    let is_across = outcome.notes.contains(&Note::MultilineBecauseOfNewline);
    let hints = [
        (outcome.dialect_used == Dialect::Basic).then_some(Note::RetriedAsBasic),
        is_across.then_some(Note::MultilineBecauseOfNewline),
    ];
    notes.extend(hints.into_iter().flatten().map(|note| format!("[Note: {note}]")));

    if outcome.too_many_files {
        notes.push(text::TOO_MANY_FILES.to_owned());
    }
    notes.extend(text::unreadable(outcome.skipped.unreadable));
    notes.extend(text::unfinished(&outcome.unfinished, outcome.n_unfinished));
    if outcome.timed_out {
        notes.push(text::timed_out(limit));
    }
    notes
}

fn data(outcome: &SearchOutcome, truncated: bool) -> serde_json::Value {
    json!({
        "matches": outcome.shown,
        "truncated": truncated,
        "timedOut": outcome.timed_out,
        "filesSearched": outcome.files_searched,
        "skipped": {
            "binary": outcome.skipped.binary,
            "unreadable": outcome.skipped.unreadable,
            "tooLong": outcome.skipped.too_long,
        },
        "dialect": match outcome.dialect_used {
            Dialect::Rust => "rust",
            Dialect::Basic => "basic",
        },
    })
}
