//! search_content: returns matching lines of the files that match a glob, 100 at a time.

use super::{Failure, FileSelection, PAGE, check_pattern, read_pattern, trailer};
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_protocol::tools::SearchContentArguments;
use quackd_sandbox::Root;
use quackd_search::{OutputMode, Scope, Search, SearchOutcome, Stop};
use quackd_tools::search_common::text::{self, ResultNotes, Style};
use quackd_tools::search_common::{RootTree, SearchToolError, data};
use quackd_tools::{Output, WorkspaceCall};
use std::time::Duration;

pub(crate) async fn search_content(call: WorkspaceCall<'_>) -> Output {
    let params = match SearchContentParams::read(&call) {
        Ok(params) => params,
        Err(failure) => return failure.output(),
    };

    let limit = call.limit();
    let searching = call.search(move |root, stop| {
        params.search_blocking(root, stop).map(|outcome| params.output(&outcome, limit))
    });
    match searching.await {
        Ok(output) => output,
        Err(SearchToolError::Because(failure)) => failure.output(),
        Err(cut_off) => call.failed(&cut_off),
    }
}

/// Parsed arguments.
struct SearchContentParams {
    pattern: String,
    files: FileSelection,
    offset: u64,
}

impl SearchContentParams {
    fn read(call: &WorkspaceCall<'_>) -> Result<Self, Failure> {
        let arguments = SearchContentArguments::of(call.arguments());
        let pattern = arguments.pattern?;
        let files = FileSelection {
            glob: arguments.glob_pattern?,
            directory: call.directory().clone(),
            is_with_ignored: arguments.include_gitignored?,
            is_with_hidden: arguments.include_hidden?,
        };
        let offset = arguments.offset?;
        if pattern.is_empty() {
            return Err(Failure::EmptyPattern);
        }
        Ok(Self { pattern, files, offset })
    }

    fn search_blocking(&self, root: &Root, stop: Stop) -> Result<SearchOutcome, Failure> {
        let pattern = read_pattern(&self.pattern);
        check_pattern(&pattern, root)?;
        let (glob, scope) = self.files.scope()?;

        let request = Search {
            scope: Scope { include: vec![glob], ..scope },
            limit: PAGE,
            offset: self.offset,
            max_bytes: MAX_OUTPUT_BYTES,
            count_total: true,
            explain_empty: true,
            ..Search::new(pattern, stop)
        };
        let mut outcome = quackd_search::search(&request, &RootTree(root))?;
        self.files.directory.show_search(&mut outcome);
        Ok(outcome)
    }

    fn output(&self, outcome: &SearchOutcome, limit: Duration) -> Output {
        let mut output = Output::success(self.text(outcome, limit));
        output.report.truncated = outcome.truncated;
        output.report.timed_out = outcome.timed_out;
        output.data = Some(data::of_search(outcome, OutputMode::Lines, 0));
        output
    }

    fn text(&self, outcome: &SearchOutcome, limit: Duration) -> String {
        let style = Style { gaps: false, carriage_returns: false };
        let mut rows = String::new();
        for file in &outcome.files {
            let path = text::shown(&file.path);
            for row in &file.rows {
                for (number, line) in (row.line..).zip(text::lines(row, style)) {
                    rows.push_str(&format!("{path}:{number}: {}\n", line.trim()));
                }
            }
        }

        // Notes about an incomplete result. No other notes follow the rows.
        let notes = ResultNotes::of_search(outcome).only_warnings().lines(limit);
        let notes = notes.iter().map(|line| format!("\n{line}")).collect::<String>();
        if rows.is_empty() {
            return format!("No matches found{notes}");
        }

        let (total, seen) = (outcome.total, self.offset + outcome.shown);
        let at_least = if total.is_exact { "" } else { "+" };
        let n_more = total.count.saturating_sub(seen);
        let is_all = total.is_exact || !outcome.truncated;
        let more = trailer(n_more, is_all, "matches", self.offset);
        format!(
            "Found {}{at_least} matches for pattern '{}' in files matching '{}':\n\n{rows}{}{notes}",
            total.count.max(seen),
            self.pattern,
            self.files.glob,
            more.map(|more| format!("\n{more}")).unwrap_or_default(),
        )
    }
}
