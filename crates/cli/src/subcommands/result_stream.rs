//! Prints the rows of a search while they arrive, and reports warnings at the end. Used by `quack grep` and `quack find`.

use crate::display::{count, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, StdoutState};
use crate::workspace_scope::{self, ScopedClient, read};
use anyhow::Context;
use quackd_protocol::client::ToolParams;
use quackd_protocol::limits::MAX_LINE_BYTES;
use quackd_protocol::search::{RowsLine, SearchPage, Warning};
use quackd_protocol::tools::{ArgumentsBuilder, FileArguments};
use serde_json::{Deserializer, Value, json};
use std::path::Path;
use std::time::Instant;

/// Message for a named path that does not exist.
pub(super) const NOT_FOUND: &str = "No such file or directory";

/// Maximum number of missing paths listed in an error.
const MAX_MISSING: usize = 20;

/// Maximum number of kept notes and unreadable paths. The worker sends fewer.
const MAX_TOLD: usize = 20;

/// Skip reasons that are reported as warnings, because the user expects the file to be searched.
const NOT_SEARCHED: &[(&str, &str)] = &[
    ("tooLong", "not searched to the end: it has a line of more than 8 MiB"),
    ("tooLarge", "not searched: it is too large for matches over several lines"),
];

/// Returns the selection of files that both subcommands share, as arguments of their tools.
pub(super) fn selection(
    no_ignore: bool,
    hidden: bool,
    max_depth: Option<u32>,
) -> ArgumentsBuilder<FileArguments> {
    FileArguments::builder()
        .ignore(no_ignore.then_some("none"))
        .hidden(hidden.then_some(true))
        .max_depth(max_depth)
}

/// Returns a list as an argument. `None` leaves an empty list out.
pub(super) fn listed(list: Vec<String>) -> Option<Vec<String>> {
    Some(list).filter(|list| !list.is_empty())
}

/// A search whose rows are printed while they arrive, and what it reported.
#[derive(Debug)]
pub(super) struct ResultStream {
    began: Instant,
    /// Number of rows, without context.
    n_shown: u64,
    /// Named paths that do not exist.
    missing: Vec<String>,
    /// The reply. It has no rows.
    end: SearchPage<'static>,
    has_changed_names: bool,
}

/// Fails if none of the named paths exists. The error lists each of them.
pub(super) fn not_all_missing(there: &[String], missing: &[String]) -> Result<(), CliError> {
    if there.is_empty() && !missing.is_empty() {
        return Err(CliError::usage(not_found(missing)));
    }
    Ok(())
}

/// Returns one line that names missing paths.
pub(super) fn not_found(missing: &[String]) -> String {
    let named: Vec<String> = missing.iter().take(MAX_MISSING).map(|path| plain(path)).collect();
    let more = match missing.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}: {NOT_FOUND}", named.join(", "))
}

impl ResultStream {
    /// Creates a result without rows. `missing`: missing paths in their displayed form. They are reported at the end and
    /// make the subcommand fail.
    pub(super) fn new(missing: Vec<String>) -> Self {
        Self {
            began: Instant::now(),
            n_shown: 0,
            missing,
            end: SearchPage::default(),
            has_changed_names: false,
        }
    }

    /// Number of rows so far.
    pub(super) fn n_shown(&self) -> u64 {
        self.n_shown
    }

    /// Counts rows from other requests.
    pub(super) fn add(&mut self, n: u64) {
        self.n_shown = self.n_shown.saturating_add(n);
    }

    /// Requests the rows, and prints what `render` makes of them.
    ///
    /// # Errors
    /// Those of the request and of printing. A refusal by the tool is a usage error.
    pub(super) async fn run(
        &mut self,
        scope: &ScopedClient,
        call: impl Into<ToolParams>,
        output: CliOutput,
        mut render: impl FnMut(RowsLine<'_>, &mut String),
    ) -> anyhow::Result<StdoutState> {
        let mut lines = RowLines::default();
        // Counted before they are printed: a limit of the tool counts rows too.
        let print = async |bytes: Vec<u8>| {
            let mut text = String::new();
            lines.feed(&bytes, |line| {
                self.count(&line);
                render(line, &mut text);
            })?;
            Ok(output.raw(text).await?)
        };

        let Some(result) = scope.stream(call, print).await? else {
            return Ok(StdoutState::Gone);
        };

        self.ended(read(workspace_scope::data(&result, CliError::usage)?)?);
        Ok(StdoutState::There)
    }

    /// Takes the reply.
    fn ended(&mut self, mut end: SearchPage<'static>) {
        end.notes.truncate(MAX_TOLD);
        end.warnings.truncate(MAX_TOLD);
        end.unfinished.truncate(MAX_TOLD);
        if let Some(n) = end.unreadable.filter(|n| *n != 0) {
            end.skipped.insert("unreadable".to_owned(), n);
        }
        self.end = end;
    }

    fn count(&mut self, line: &RowsLine<'_>) {
        let (n, is_changed) = match line {
            RowsLine::Lines(file) => {
                let matches = file.rows.iter().filter(|row| !row.2.is_empty());
                (matches.count(), file.path_bytes.is_some())
            }
            RowsLine::File(file) => (1, file.path_bytes.is_some()),
            RowsLine::Entry(entry) => (1, entry.path_bytes.is_some()),
        };
        self.add(u64::try_from(n).unwrap_or(0));
        self.has_changed_names |= is_changed;
    }

    /// Reports warnings at the end: on stderr, or as the last line of JSON.
    pub(super) async fn tell(&self, directory: &Path, output: CliOutput) -> anyhow::Result<()> {
        if output.is_json() {
            let text = format!("{}\n", self.summary(directory));
            let _reader = output.raw(text).await?;
            return Ok(());
        }

        for note in &self.end.notes {
            output.note(&plain(note));
        }

        for path in &self.missing {
            output.warning(&format!("{}: {NOT_FOUND}", plain(path)));
        }
        for Warning { path, message: reason, .. } in &self.end.warnings {
            output.warning(&format!("{}: {}", plain(path), plain(reason)));
        }

        let unreadable = self.skipped("unreadable");
        let more = usize::try_from(unreadable)?.saturating_sub(self.end.warnings.len());
        if more != 0 {
            output.warning(&format!("{} could not be read", count(more, "more path")));
        }

        for Warning { path, message: reason, .. } in &self.end.unfinished {
            output.warning(&format!("{}: {}", plain(path), plain(reason)));
        }

        // A program that reads the rows must learn that some are missing.
        for (name, reason) in NOT_SEARCHED {
            let n = self.skipped(name);
            // The first files were named.
            if n != 0 && self.end.unfinished.len() != 1 {
                output.warning(&format!("{} {reason}", count(n, "file")));
            }
        }

        if self.has_changed_names {
            output.warning("some names are not UTF-8: the shown names do not open the files");
        }
        if self.end.too_many_files {
            output.warning("there are too many files: only some were searched");
        }
        if self.end.timed_out {
            output.warning("the search timed out: results are missing; see --timeout");
        }
        Ok(())
    }

    pub(super) fn skipped(&self, name: &str) -> u64 {
        self.end.skipped.get(name).copied().unwrap_or_default()
    }

    /// Whether everything requested was searched and shown.
    fn is_complete(&self) -> bool {
        let SearchPage { truncated, timed_out, too_many_files, .. } = self.end;
        !(truncated || timed_out || too_many_files)
            && self.missing.is_empty()
            && NOT_SEARCHED.iter().all(|(name, _)| self.skipped(name) == 0)
    }

    fn summary(&self, directory: &Path) -> Value {
        let missing = self.missing.iter().map(|path| json!({"path": path, "message": NOT_FOUND}));
        let others = self.end.warnings.iter().chain(&self.end.unfinished);
        let others =
            others.map(|warning| json!({"path": warning.path, "message": warning.message}));
        let warnings: Vec<Value> = missing.chain(others).collect();

        let mut summary = json!({
            "type": "summary",
            "directory": directory,
            "shown": self.n_shown,
            "complete": self.is_complete(),
            "timedOut": self.end.timed_out,
            "skipped": self.end.skipped,
            "warnings": warnings,
            "notes": self.end.notes,
            "elapsedMs": u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });

        if let (Some(n), Some(summary)) = (self.end.files_searched, summary.as_object_mut()) {
            summary.insert("filesSearched".to_owned(), n.into());
        }
        summary
    }

    /// Returns the exit code: `nothing` for an empty result, a failure if results are missing.
    pub(super) fn exit(&self, nothing: ExitCode) -> ExitCode {
        match (self.end.timed_out, self.n_shown) {
            (true, _) => ExitCode::BusyOrLate,
            (false, _) if !self.missing.is_empty() => ExitCode::Usage,
            (false, 0) => nothing,
            (false, _) => ExitCode::Ok,
        }
    }
}

/// Splits bytes into lines and reads them.
#[derive(Debug, Default)]
struct RowLines {
    /// Start of the last line, which is not complete.
    rest: Vec<u8>,
}

impl RowLines {
    fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(RowsLine<'_>)) -> anyhow::Result<()> {
        let n_complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (complete, rest) = bytes.split_at(n_complete);
        if !complete.is_empty() {
            self.rest.extend_from_slice(complete);
            // One check of all bytes is faster than one for each string.
            let lines = str::from_utf8(&self.rest).context("unexpected reply of the worker")?;
            for line in Deserializer::from_str(lines).into_iter() {
                take(line.map_err(unexpected)?);
            }
            self.rest.clear();
        }

        // A line without an end must not fill the memory.
        if MAX_LINE_BYTES < self.rest.len() {
            anyhow::bail!(
                "unexpected reply of the worker: a line of more than {MAX_LINE_BYTES} bytes"
            );
        }
        self.rest.extend_from_slice(rest);
        Ok(())
    }
}

fn unexpected(error: serde_json::Error) -> anyhow::Error {
    anyhow::anyhow!("unexpected reply of the worker: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::search::{FileLines, FileRow, LineRow};
    use std::borrow::Cow;

    fn ended(shown: u64, end: SearchPage<'static>) -> ResultStream {
        let mut result = ResultStream::new(Vec::new());
        result.add(shown);
        result.ended(end);
        result
    }

    #[test]
    fn what_is_missing_decides_the_exit_code_and_makes_the_result_incomplete() {
        let skipped = |name: &str| SearchPage {
            skipped: [(name.to_owned(), 1)].into(),
            ..SearchPage::default()
        };
        let all = SearchPage::default;
        for (shown, end, is_complete, exit) in [
            (5, all(), true, ExitCode::Ok),
            (0, all(), true, ExitCode::Failed),
            (5, SearchPage { truncated: true, ..all() }, false, ExitCode::Ok),
            (5, SearchPage { timed_out: true, ..all() }, false, ExitCode::BusyOrLate),
            (5, SearchPage { too_many_files: true, ..all() }, false, ExitCode::Ok),
            (5, skipped("binary"), true, ExitCode::Ok),
            (5, skipped("tooLong"), false, ExitCode::Ok),
            (5, skipped("tooLarge"), false, ExitCode::Ok),
        ] {
            let told = format!("{shown} {end:?}");
            let mut result = ended(shown, end);
            let summary = result.summary(Path::new("/ws/a"));
            assert_eq!(
                (result.exit(ExitCode::Failed), &summary["complete"]),
                (exit, &json!(is_complete)),
                "{told}"
            );
            result.missing.push("nope".to_owned());
            let summary = result.summary(Path::new("/ws/a"));
            assert_eq!(summary["complete"], false, "{told}");
        }
    }

    #[test]
    fn the_summary_has_what_the_reply_counted() {
        let warning =
            Warning { path: "x".to_owned(), message: "denied".to_owned(), path_bytes: None };
        let end = SearchPage {
            skipped: [("hidden".to_owned(), 3)].into(),
            warnings: vec![warning],
            notes: vec!["note".to_owned(); 99],
            files_searched: Some(20),
            unreadable: Some(4),
            ..SearchPage::default()
        };
        let summary = ended(2, end).summary(Path::new("/ws/a"));
        assert_eq!(summary["skipped"], json!({"hidden": 3, "unreadable": 4}));
        assert_eq!(summary["warnings"], json!([{"path": "x", "message": "denied"}]));
        assert_eq!(summary["notes"].as_array().map(Vec::len), Some(MAX_TOLD));
        assert_eq!((&summary["filesSearched"], &summary["shown"]), (&json!(20), &json!(2)));
        assert_eq!((&summary["type"], &summary["directory"]), (&json!("summary"), &json!("/ws/a")));
    }

    #[test]
    fn lines_are_read_however_their_bytes_arrive() {
        let text = concat!(
            r#"{"lines":{"path":"a\tb","rows":[[1,"c"],[2,"x\n",[1,0,1],[3,0,9]]]}}"#,
            "\n",
            r#"{"lines":{"rows":[[18446744073709551615,""]]}}"#,
            "\n",
            r#"{"file":{"path":"b","count":3}}"#,
            "\n",
            r#"{"entry":{"path":"c","kind":"dir","later":1}}"#,
            "\n",
        );
        let mut whole = Vec::new();
        RowLines::default().feed(text.as_bytes(), |line| whole.push(format!("{line:?}"))).unwrap();
        assert_eq!(whole.len(), 4);
        assert!(whole[0].contains("a\\tb") && whole[3].contains("dir"), "{whole:?}");
        for n in 1..text.len() {
            let (mut lines, mut all) = (RowLines::default(), Vec::new());
            for piece in text.as_bytes().chunks(n) {
                lines.feed(piece, |line| all.push(format!("{line:?}"))).unwrap();
            }
            assert_eq!(all, whole);
        }
        for bad in ["{\n", "{\"rows\":[]}\n", "{\"lines\":{\"rows\":[[\"x\"]]}}\n"] {
            assert!(RowLines::default().feed(bad.as_bytes(), |_| ()).is_err(), "{bad}");
        }
        let mut endless = RowLines::default();
        let piece = vec![b' '; 1024 * 1024];
        assert!((0..20).any(|_| endless.feed(&piece, |_| ()).is_err()));
    }

    #[test]
    fn rows_are_counted_without_context() {
        let row =
            |places: &[u64]| LineRow(1, Cow::Borrowed("x"), places.iter().copied().collect(), None);
        let file =
            FileLines { rows: vec![row(&[]), row(&[1]), row(&[2, 1, 2])], ..FileLines::default() };
        let mut result = ResultStream::new(Vec::new());
        result.count(&RowsLine::Lines(file));
        result.count(&RowsLine::File(FileRow {
            path_bytes: Some("Yf8=".to_owned()),
            ..FileRow::default()
        }));
        assert_eq!((result.n_shown(), result.has_changed_names), (3, true));
    }
}
