//! search: quackd's tool for searching content, with all options of the engine.

use super::row_writer::RowWriter;
use super::text::{ResultNotes, Style};
use super::{
    Budget, RootTree, SearchFailure, data, pattern, row_writer, run, scope, starts_blocking, text,
};
use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use crate::caller_dir::CallerDir;
use crate::parameters::{BadParameter, Parameters};
use crate::{Call, Output};
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
    let wanted = match SearchParams::read(arguments, bounds, rows.is_none()) {
        Ok(wanted) => wanted,
        Err(error) => return Output::error(error),
    };
    let budget = wanted.budget;
    let found = run("search", root, bounds, budget, move |root, stop| match rows {
        Some(rows) => wanted.stream_blocking(root, stop, rows),
        None => wanted.answer_blocking(root, &stop),
    });
    match found.await {
        Ok(output) => output,
        Err(refusal) => refusal.output(bounds),
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
        let parameters = Parameters::named("search", arguments)?;
        let pattern = pattern::pattern(&parameters)?;
        let (scope, paths) = scope::scope(&parameters)?;
        let budget = Budget::at_most(bounds, parameters.whole("timeout_ms")?);
        let context = parameters.size("context")?.unwrap_or_default();
        let request = Search {
            scope,
            invert: parameters.is_set("invert")?,
            before: parameters.size("before")?.unwrap_or(context),
            after: parameters.size("after")?.unwrap_or(context),
            output: output(&parameters)?,
            limit: parameters.limit(has_pages)?,
            offset: parameters.whole("offset")?.unwrap_or_default(),
            cursor: parameters.text("cursor")?,
            max_per_file: parameters.whole("max_per_file")?,
            max_line: parameters
                .size("max_line")?
                .filter(|chars| *chars != 0)
                .map(|chars| chars.max(MIN_LINE_CHARS)),
            max_bytes: parameters.size("max_bytes")?.unwrap_or_default(),
            count_total: parameters.is_set("total")?,
            binary: match parameters.choice("binary", &[])? {
                Some("text") => Binary::Text,
                Some("report") => Binary::Report,
                _ => Binary::Skip,
            },
            encoding: match parameters.text("encoding")?.as_deref().map(str::trim) {
                None | Some("auto") => Encoding::Auto,
                Some("none") => Encoding::None,
                Some(label) => Encoding::Label(label.to_owned()),
            },
            explain_empty: true,
            ..Search::new(pattern, Stop::at(budget.deadline))
        };
        let directory = arguments.directory().clone();
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
            shown => row_writer::text(shown),
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

fn output(parameters: &Parameters<'_>) -> Result<OutputMode, BadParameter> {
    const SPELLINGS: &[(&str, &str)] = &[
        ("lines", "content"),
        ("files_with_matches", "files"),
        ("files_without_match", "files_without"),
        ("files_without_matches", "files_without"),
        ("count_lines", "count"),
    ];
    if !parameters.has("output") {
        if parameters.is_set("names_only")? {
            return Ok(OutputMode::Files);
        }
        if parameters.is_set("only_matching")? {
            return Ok(OutputMode::OnlyMatching);
        }
    }
    Ok(match parameters.choice("output", SPELLINGS)? {
        Some("only_matching") => OutputMode::OnlyMatching,
        Some("files") => OutputMode::Files,
        Some("files_without") => OutputMode::FilesWithout,
        Some("count") => OutputMode::CountLines,
        Some("count_matches") => OutputMode::CountMatches,
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
