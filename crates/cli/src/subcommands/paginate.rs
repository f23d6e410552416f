//! Requests the pages of a tool's result, and reports warnings about all of them at the end. Used by `quack grep` and
//! `quack find`.

use crate::display::{count, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::render::search::data::ResultPage;
use crate::workspace_scope::{self, ScopedClient, WorkspaceScope};
use quackd_protocol::limits::MAX_ROWS;
use quackd_protocol::search::Warning;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of unreadable paths listed at the end.
const MAX_WARNINGS: usize = 5;

/// Maximum number of kept notes of the tool.
const MAX_NOTES: usize = 20;

/// Message for a named path that does not exist.
pub(super) const NOT_FOUND: &str = "No such file or directory";

/// Maximum number of missing paths listed in an error.
const MAX_MISSING: usize = 20;

/// Counters that each page reports for the whole tree.
const OF_THE_TREE: &[&str] = &["ignored", "hidden", "filtered", "notRegular", "unreadable"];

/// Skip reasons that are reported as warnings, because the user expects the file to be searched.
const NOT_SEARCHED: &[(&str, &str)] = &[
    ("tooLong", "not searched to the end: it has a line of more than 8 MiB"),
    ("tooLarge", "not searched: it is too large for matches over several lines"),
];

/// Sets an argument.
pub(super) fn set(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    map.insert(name.to_owned(), value.into());
}

/// Adds the file selection that both subcommands share.
pub(super) fn selection(
    no_ignore: bool,
    hidden: bool,
    max_depth: Option<u32>,
    map: &mut Map<String, Value>,
) {
    if no_ignore {
        set(map, "ignore", "none");
    }
    if hidden {
        set(map, "hidden", true);
    }
    if let Some(depth) = max_depth {
        set(map, "max_depth", depth);
    }
}

/// Request whose result arrives in pages.
#[derive(Debug)]
pub(super) struct PageLoop {
    tool: &'static str,
    arguments: Map<String, Value>,
    /// Remaining rows. `None` without a limit.
    left: Option<u64>,
    began: Instant,
    is_done: bool,
    /// Whether rows were omitted because of the limit.
    is_cut: bool,
    timed_out: bool,
    too_many_files: bool,
    /// Whether an empty page announced another page.
    is_stuck: bool,
    n_shown: u64,
    n_searched: Option<u64>,
    skipped: BTreeMap<String, u64>,
    warnings: Vec<Warning>,
    /// Named paths that do not exist.
    missing: Vec<String>,
    notes: Vec<String>,
    n_changed_names: u64,
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

impl PageLoop {
    /// Creates a loop that has not requested anything. `limit`: maximum number of rows of all pages.
    pub(super) fn new(
        tool: &'static str,
        arguments: Map<String, Value>,
        limit: Option<u64>,
    ) -> Self {
        Self {
            tool,
            arguments,
            left: limit,
            began: Instant::now(),
            is_done: false,
            is_cut: false,
            timed_out: false,
            too_many_files: false,
            is_stuck: false,
            n_shown: 0,
            n_searched: None,
            skipped: BTreeMap::new(),
            warnings: Vec::new(),
            missing: Vec::new(),
            notes: Vec::new(),
            n_changed_names: 0,
        }
    }

    /// Adds missing paths in their displayed form. They are reported at the end and make the subcommand fail.
    pub(super) fn are_missing(&mut self, paths: Vec<String>) {
        self.missing = paths;
    }

    /// Ends the loop without a request.
    pub(super) fn ask_nothing(&mut self) {
        self.is_done = true;
    }

    /// Returns the remaining rows, for rows from other requests. `Some(0)`: none.
    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }

    /// Whether any row was found.
    pub(super) fn has_rows(&self) -> bool {
        self.n_shown != 0
    }

    /// Counts rows from other requests.
    pub(super) fn add(&mut self, shown: u64) {
        self.n_shown = self.n_shown.saturating_add(shown);
    }

    /// Returns the next page; `None` after the last one.
    ///
    /// # Errors
    /// Those of the request. A refusal by the tool is a usage error.
    pub(super) async fn next(
        &mut self,
        asking: &ScopedClient,
    ) -> anyhow::Result<Option<ResultPage>> {
        if self.is_done {
            return Ok(None);
        }
        if self.n_shown != 0 && asking.time_left().is_none() {
            self.timed_out = true;
            return Ok(None);
        }
        let limit = self.left.map_or(MAX_ROWS, |left| left.min(MAX_ROWS));
        set(&mut self.arguments, "limit", limit);
        let result = asking.call(self.tool, self.arguments.clone(), true).await?;
        let data = result.data.as_ref().filter(|_| !result.info.is_error);
        let Some(data) = data else {
            return Err(workspace_scope::failure(&result, CliError::usage).into());
        };
        let page = ResultPage::read(data)?;
        self.account(&page);
        Ok(Some(page))
    }

    fn account(&mut self, page: &ResultPage) {
        self.n_shown = self.n_shown.saturating_add(page.shown);
        self.left = self.left.map(|left| left.saturating_sub(page.shown));
        self.timed_out |= page.timed_out;
        self.too_many_files |= page.too_many_files;
        self.n_changed_names = self.n_changed_names.saturating_add(page.n_changed_names);
        if let Some(n) = page.files_searched {
            let all = self.n_searched.get_or_insert_default();
            *all = all.saturating_add(n);
        }
        for (name, n) in &page.skipped {
            let known = self.skipped.entry(name.clone()).or_default();
            *known = if OF_THE_TREE.contains(&name.as_str()) {
                (*known).max(*n)
            } else {
                known.saturating_add(*n)
            };
        }
        for warning in &page.warnings {
            if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
        for note in &page.notes {
            if self.notes.len() < MAX_NOTES && !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
        let has_next = match (&page.cursor, page.next_offset) {
            (Some(cursor), _) => {
                set(&mut self.arguments, "cursor", cursor.as_str());
                true
            }
            (None, Some(offset)) => {
                set(&mut self.arguments, "offset", offset);
                true
            }
            (None, None) => false,
        };
        self.is_cut = has_next && self.left == Some(0);
        // An empty page that announces another one would do so forever. Stop, but report missing results.
        self.is_stuck = has_next && page.shown == 0 && !self.is_cut && !self.timed_out;
        self.is_done = !has_next || self.is_cut || page.shown == 0 || self.timed_out;
    }

    /// Reports warnings at the end: on stderr, or as the last line of JSON.
    pub(super) async fn tell(
        &self,
        place: &WorkspaceScope,
        output: CliOutput,
    ) -> anyhow::Result<()> {
        if output.is_json() {
            let text = format!("{}\n", self.summary(place));
            let _reader = output.raw(text).await?;
            return Ok(());
        }
        for note in &self.notes {
            output.note(&plain(note));
        }
        for path in &self.missing {
            output.warning(&format!("{}: {NOT_FOUND}", plain(path)));
        }
        for Warning { path, message: reason, .. } in &self.warnings {
            output.warning(&format!("{}: {}", plain(&place.shown(path)), plain(reason)));
        }
        let unreadable = self.skipped("unreadable");
        let more = usize::try_from(unreadable)?.saturating_sub(self.warnings.len());
        if more != 0 {
            output.warning(&format!("{} could not be read", count(more, "more path")));
        }
        for (name, why) in NOT_SEARCHED {
            let n = self.skipped(name);
            if n != 0 {
                output.warning(&format!("{} {why}", count(usize::try_from(n)?, "file")));
            }
        }
        if self.n_changed_names != 0 {
            output.warning("some names are not UTF-8: the shown names do not open the files");
        }
        if self.too_many_files {
            output.warning("there are too many files: only some were searched");
        }
        if self.timed_out {
            output.warning("the search timed out: results are missing; see --timeout");
        }
        if self.is_stuck {
            output.warning("there is more, but the next page is empty: results are missing");
        }
        Ok(())
    }

    pub(super) fn skipped(&self, name: &str) -> u64 {
        self.skipped.get(name).copied().unwrap_or_default()
    }

    /// Whether everything requested was searched and shown.
    fn is_complete(&self) -> bool {
        let is_ended = self.is_cut || self.timed_out || self.too_many_files || self.is_stuck;
        !is_ended
            && self.missing.is_empty()
            && NOT_SEARCHED.iter().all(|(name, _)| self.skipped(name) == 0)
    }

    fn summary(&self, place: &WorkspaceScope) -> Value {
        let missing = self.missing.iter().map(|path| json!({"path": path, "message": NOT_FOUND}));
        let found = self.warnings.iter();
        let found = found
            .map(|warning| json!({"path": place.shown(&warning.path), "message": warning.message}));
        let warnings: Vec<Value> = missing.chain(found).collect();
        let mut summary = json!({
            "type": "summary",
            "directory": place.directory(),
            "shown": self.n_shown,
            "complete": self.is_complete(),
            "timedOut": self.timed_out,
            "skipped": self.skipped,
            "warnings": warnings,
            "notes": self.notes,
            "elapsedMs": millis(self.began.elapsed()),
        });
        if let (Some(n), Some(summary)) = (self.n_searched, summary.as_object_mut()) {
            set(summary, "filesSearched", n);
        }
        summary
    }

    /// Returns the exit code: `nothing` for an empty result, a failure if results are missing.
    pub(super) fn exit(&self, nothing: ExitCode) -> ExitCode {
        match (self.timed_out, self.n_shown) {
            (true, _) => ExitCode::BusyOrLate,
            (false, _) if self.is_stuck => ExitCode::Failed,
            (false, _) if !self.missing.is_empty() => ExitCode::Usage,
            (false, 0) => nothing,
            (false, _) => ExitCode::Ok,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(limit: Option<u64>) -> PageLoop {
        PageLoop::new("search", Map::new(), limit)
    }

    fn page(shown: u64, cursor: Option<&str>) -> ResultPage {
        ResultPage { shown, cursor: cursor.map(str::to_owned), ..ResultPage::default() }
    }

    #[test]
    fn it_ends_with_the_last_page_the_limit_the_time_or_a_page_without_rows() {
        for (limit, all, is_done, is_cut, exit) in [
            (None, vec![page(5, Some("c"))], false, false, ExitCode::Ok),
            (None, vec![page(5, Some("c")), page(1, None)], true, false, ExitCode::Ok),
            (None, vec![page(0, None)], true, false, ExitCode::Failed),
            (None, vec![page(5, Some("c")), page(0, Some("c"))], true, false, ExitCode::Failed),
            (None, vec![page(5, Some("c")), page(0, None)], true, false, ExitCode::Ok),
            (Some(5), vec![page(5, Some("c"))], true, true, ExitCode::Ok),
            (Some(5), vec![page(5, None)], true, false, ExitCode::Ok),
            (Some(6), vec![page(5, Some("c"))], false, false, ExitCode::Ok),
            (
                None,
                vec![ResultPage { timed_out: true, ..page(5, Some("c")) }],
                true,
                false,
                ExitCode::BusyOrLate,
            ),
        ] {
            let mut pages = pages(limit);
            all.iter().for_each(|page| pages.account(page));
            assert_eq!((pages.is_done, pages.is_cut), (is_done, is_cut), "{all:?}");
            assert_eq!(pages.exit(ExitCode::Failed), exit, "{all:?}");
        }
    }

    #[test]
    fn the_next_page_is_asked_for_by_cursor_or_else_by_offset() {
        let mut pages = pages(None);
        pages.account(&page(5, Some("c")));
        assert_eq!(pages.arguments["cursor"], "c");
        pages.account(&ResultPage { next_offset: Some(7), ..page(2, None) });
        assert_eq!(pages.arguments["offset"], 7);
    }

    #[test]
    fn what_all_pages_counted_is_counted_once() {
        let mut pages = pages(None);
        let warning =
            Warning { path: "x".to_owned(), message: "denied".to_owned(), path_bytes: None };
        for _ in 0..2 {
            let skipped = [("hidden".to_owned(), 3), ("binary".to_owned(), 2)].into();
            let (warnings, notes) = (vec![warning.clone()], vec!["note".to_owned()]);
            let files_searched = Some(10);
            pages.account(&ResultPage {
                skipped,
                warnings,
                notes,
                files_searched,
                ..page(1, Some("c"))
            });
        }
        let summary = pages.summary(&WorkspaceScope::of("/ws", "a"));
        assert_eq!(summary["skipped"], json!({"hidden": 3, "binary": 4}));
        assert_eq!(summary["warnings"], json!([{"path": "../x", "message": "denied"}]));
        assert_eq!(summary["notes"], json!(["note"]));
        let rest = (&summary["filesSearched"], &summary["shown"], &summary["complete"]);
        assert_eq!(rest, (&json!(20), &json!(2), &json!(true)));
        assert_eq!((&summary["type"], &summary["directory"]), (&json!("summary"), &json!("/ws/a")));
    }

    #[test]
    fn what_was_not_searched_or_not_reached_makes_it_incomplete() {
        let skipped =
            |name: &str| ResultPage { skipped: [(name.to_owned(), 1)].into(), ..page(1, None) };
        for (last, is_complete) in [
            (page(1, None), true),
            (page(0, None), true),
            (skipped("binary"), true),
            (skipped("tooLong"), false),
            (skipped("tooLarge"), false),
            (page(0, Some("c")), false),
            (ResultPage { next_offset: Some(5), ..page(0, None) }, false),
            (ResultPage { timed_out: true, ..page(1, None) }, false),
            (ResultPage { too_many_files: true, ..page(1, None) }, false),
        ] {
            let mut pages = pages(None);
            pages.account(&page(5, Some("c")));
            pages.account(&last);
            let summary = pages.summary(&WorkspaceScope::of("/ws", "a"));
            assert_eq!(summary["complete"], is_complete, "{last:?}");
        }
    }
}
