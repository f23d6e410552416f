//! search: quackd's tool for searching content, with all options of the engine.

use super::row_writer::RowWriter;
use super::text::{ResultNotes, Style};
use super::{
    Budget, RootTree, SearchFailure, data, pattern, row_writer, run, scope, starts_blocking, text,
};
use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use crate::caller_dir::CallerDir;
use crate::{Call, Output};
use quackd_protocol::tools::{BadParameter, Checked, SEARCH, SearchArguments};
use quackd_sandbox::Root;
use quackd_search::{Binary, Encoding, Note, OutputMode, Search, SearchOutcome, Stop};
use std::sync::Arc;

/// Minimum value of the limit of characters per line.
const MIN_LINE_CHARS: usize = 40;

pub(crate) async fn search(
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let rows = RowWriter::of(call);
    let params = match SearchParams::read(arguments, bounds, rows.is_none()) {
        Ok(params) => params,
        Err(error) => return Output::error(error),
    };

    let budget = params.budget;
    let searching = run(root, bounds, budget, move |root, stop| match rows {
        Some(rows) => params.stream_blocking(root, stop, rows),
        None => params.answer_blocking(root, &stop),
    });
    match searching.await {
        Ok(output) => output,
        Err(refusal) => refusal.output("search", bounds),
    }
}

/// Parsed arguments.
struct SearchParams {
    request: Search,
    paths: Vec<String>,
    directory: CallerDir,
    budget: Budget,
}

impl SearchParams {
    fn read(
        arguments: &Arguments,
        bounds: &CallLimits,
        has_pages: bool,
    ) -> Result<Self, BadParameter> {
        let params = SearchArguments::of(arguments.known(&SEARCH)?);
        let directory = arguments.directory().clone();
        let pattern = pattern::pattern(params.what)?;
        let (scope, paths) = scope::scope(params.files, &directory)?;
        let budget = Budget::at_most(bounds, params.timeout_ms?);
        let context = params.context?;

        let request = Search {
            scope,
            invert: params.invert?,
            before: params.before?.unwrap_or(context),
            after: params.after?.unwrap_or(context),
            output: output(params.output, params.names_only, params.only_matching)?,
            limit: params.limit?.of(has_pages),
            offset: params.offset?,
            cursor: params.cursor?,
            max_per_file: params.max_per_file?,
            max_line: match params.max_line? {
                0 => None,
                chars => Some(chars.max(MIN_LINE_CHARS)),
            },
            max_bytes: params.max_bytes?,
            count_total: params.total?,
            binary: match params.binary? {
                Some("text") => Binary::Text,
                Some("report") => Binary::Report,
                _ => Binary::Skip,
            },
            encoding: match params.encoding?.as_deref().map(str::trim) {
                None | Some("auto") => Encoding::Auto,
                Some("none") => Encoding::None,
                Some(label) => Encoding::Label(label.to_owned()),
            },
            explain_empty: true,
            ..Search::new(pattern, Stop::at(budget.deadline))
        };
        Ok(Self { request, paths, directory, budget })
    }

    fn answer_blocking(mut self, root: &Root, stop: &Stop) -> Result<Output, SearchFailure> {
        self.request.stop = stop.clone();
        self.request.scope.starts = starts_blocking(root, &self.paths)?;
        loop {
            let mut outcome = quackd_search::search(&self.request, &RootTree(root))?;
            self.directory.show_search(&mut outcome);
            let output = self.output(&outcome);
            if output.fits_into_frame() || self.request.max_bytes == 0 {
                return Ok(output);
            }

            // As JSON, the rows need more space than in the text. Search again with fewer of them.
            self.request.max_bytes /= 4;
        }
    }

    /// Passes the rows on while they are found.
    fn stream_blocking(
        mut self,
        root: &Root,
        stop: Stop,
        mut rows: RowWriter,
    ) -> Result<Output, SearchFailure> {
        self.request.scope.starts = starts_blocking(root, &self.paths)?;
        self.request.stop = stop.clone();
        let mode = self.request.output;
        let directory = &self.directory;
        let mut take = |file| rows.file_blocking(&directory.show_file(file), mode, &stop);
        let outcome = quackd_search::search_to(&self.request, &RootTree(root), &mut take)?;

        let text = match outcome.shown {
            0 => nothing(&outcome, mode).to_owned(),
            n_rows => row_writer::text(n_rows),
        };

        let mut output = Output::success(text);
        output.report.truncated = outcome.truncated;
        output.report.timed_out = outcome.timed_out;
        output.data = Some(data::of_search(&outcome, mode, 0));
        Ok(output)
    }

    fn output(&self, outcome: &SearchOutcome) -> Output {
        let mode = self.request.output;
        let style = Style {
            gaps: self.request.before != 0 || self.request.after != 0,
            carriage_returns: false,
        };
        let mut answer = String::new();
        let mut take = |row: &str| {
            answer.push_str(row);
            true
        };

        match mode {
            OutputMode::Lines | OutputMode::OnlyMatching => {
                text::rows(&outcome.files, style, &mut take);
            }
            _ => text::files(outcome, mode, &mut take),
        }

        if answer.is_empty() {
            answer.push_str(nothing(outcome, mode));
            answer.push('\n');
        }

        for line in ResultNotes::of_search(outcome).lines(self.budget.limit) {
            answer.push_str(&line);
            answer.push('\n');
        }
        answer.pop();

        let mut output = Output::success(answer);
        output.report.truncated = outcome.truncated;
        output.report.timed_out = outcome.timed_out;
        output.data = Some(data::of_search(outcome, mode, self.request.after));
        output
    }
}

fn output(
    output: Checked<Option<&str>>,
    names_only: Checked<bool>,
    only_matching: Checked<bool>,
) -> Checked<OutputMode> {
    let Some(word) = output? else {
        if names_only? {
            return Ok(OutputMode::Files);
        }
        return Ok(if only_matching? { OutputMode::OnlyMatching } else { OutputMode::Lines });
    };
    Ok(match word {
        "only_matching" => OutputMode::OnlyMatching,
        "files" => OutputMode::Files,
        "files_without" => OutputMode::FilesWithout,
        "count" => OutputMode::CountLines,
        "count_matches" => OutputMode::CountMatches,
        _ => OutputMode::Lines,
    })
}

/// Returns the text for an empty result. A page after the last one is not the same as no match.
fn nothing(outcome: &SearchOutcome, mode: OutputMode) -> &'static str {
    let is_past_end = outcome.notes.iter().any(|note| matches!(note, Note::OffsetPastEnd { .. }));
    match mode {
        _ if is_past_end => "No more results",
        OutputMode::FilesWithout => "No files found",
        _ => "No matches found",
    }
}
