//! `quack changes`: lists the changes that tools made in files, and those of commands where states are recorded.

use super::isolated::{ISOLATED_TIMEOUT, letter};
use super::undo::selected;
use crate::args::search::ToolCallArgs;
use crate::args::undo::ChangesArgs;
use crate::display::{count, name_cell, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, DIM, RED, StdoutProperties};
use crate::render::search::diff::render_patch;
use crate::render::search::{PATH, fit, push};
use crate::session_ref::{self, Missing};
use crate::workspace_scope::{self, ScopedClient};
use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_protocol::client::{IsolatedAction, IsolatedParams};
use quackd_protocol::isolate::{Checkpoint, CheckpointFile};
use serde::Deserialize;

/// Changes in the data of `undo` with `list`. The data comes from a worker and may be faulty: missing fields get defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ChangeList {
    entries: Vec<Entry>,
}

/// A replacement, an undo or a change of one file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    undo_id: String,
    at_ms: i64,
    tool: String,
    turn: Option<u64>,
    /// Number of files that the call changed. `changes` may have fewer.
    files: usize,
    /// The first files, in the order of the tool.
    changes: Vec<ChangedFile>,
    undoes: Option<String>,
    undone_by: Option<String>,
    interrupted: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ChangedFile {
    path: String,
    /// `created`, `changed` or `deleted`.
    change: String,
    diff: Option<String>,
    /// Reason for a missing diff.
    no_diff: Option<String>,
}

/// Prints one entry for each call, the newest first.
pub(crate) async fn run(args: ChangesArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let list =
        selected(&args.group).list(true).diff(args.diff.then_some(true)).undo_id(args.id.clone());

    let call = ToolCallArgs { which: args.which.into_which(), timeout: None, force: false };
    let scope = ScopedClient::begin_in(&call, Missing::Refuse, output).await?;
    session_ref::tell(&scope.found, output);
    let result = scope.call(list, false).await?;
    let Some(data) = result.data.as_ref().filter(|_| !result.info.is_error) else {
        return Err(workspace_scope::failure(&result, CliError::failed).into());
    };

    if output.is_json() {
        output.document(data)?;
        return Ok(ExitCode::Ok);
    }

    let list = ChangeList::deserialize(data).context("unexpected reply of the worker")?;
    let is_all = args.id.is_none() && args.group.call.is_none() && args.group.turn.is_none();
    let states = if is_all { states_after_commands(&scope).await } else { Vec::new() };
    if list.entries.is_empty() && states.is_empty() {
        output.answer("no tool has changed a file; what commands changed is in quack checkpoints, if it is recorded\n")?;
        return Ok(ExitCode::Ok);
    }

    let format = Format { zone: TimeZone::system(), now: Timestamp::now() };
    let audience = output.audience();

    // Both lists have times, so the rows are merged.
    let changes = list.entries.iter().map(|entry| (entry.at_ms, format.entry(entry, audience)));
    let states = states.iter().map(|state| (state.at_ms, format.state(state, audience)));
    let mut all: Vec<(i64, String)> = changes.chain(states).collect();
    all.sort_by_key(|(at_ms, _)| std::cmp::Reverse(*at_ms));
    let text: String = all.into_iter().map(|(_, text)| text).collect();
    let _reader = output.raw(text).await?;
    Ok(ExitCode::Ok)
}

/// Returns the recorded states of the session's files after commands and jobs. None if no states are recorded.
async fn states_after_commands(scope: &ScopedClient) -> Vec<Checkpoint> {
    let params = IsolatedParams {
        session_id: Some(scope.found.session_id.0.clone()),
        action: Some(IsolatedAction::Checkpoints),
        ..IsolatedParams::default()
    };

    let data = scope.client().call_within(params, ISOLATED_TIMEOUT).await;
    let mut states = data.map(|data| data.checkpoints).unwrap_or_default();
    // The tools list their changes themselves.
    states.retain(|state| state.by_commands);
    states
}

/// Formats changes.
struct Format {
    zone: TimeZone,
    now: Timestamp,
}

impl Format {
    fn entry(&self, entry: &Entry, audience: StdoutProperties) -> String {
        let mut text = String::new();
        push(&mut text, &time(entry.at_ms, &self.zone, self.now), DIM, audience);
        if let Some(turn) = entry.turn {
            text.push_str(&format!("  turn {turn}"));
        }
        text.push_str(&format!("  {}  ", name_cell(&entry.tool)));

        match entry.changes.as_slice() {
            [file] => self.file(file, &mut text, audience),
            _ => text.push_str(&count(entry.files, "file")),
        }

        if let Some(undoes) = &entry.undoes {
            text.push_str(&format!("  takes back {}", plain(undoes)));
        }

        text.push_str("  ");
        push(&mut text, &plain(&entry.undo_id), DIM, audience);
        if let Some(by) = &entry.undone_by {
            push(&mut text, &format!("  undone by {}", plain(by)), DIM, audience);
        }

        if entry.interrupted {
            push(&mut text, "  interrupted", RED, audience);
        }
        text.push('\n');

        for file in &entry.changes {
            if 1 < entry.changes.len() {
                text.push_str("    ");
                self.file(file, &mut text, audience);
                text.push('\n');
            }
            if let Some(patch) = &file.diff {
                text.push_str(&render_patch(patch, audience));
            }
            if let Some(reason) = &file.no_diff {
                push(&mut text, &format!("    no diff: {}\n", plain(reason)), DIM, audience);
            }
        }

        if entry.changes.len() < entry.files {
            text.push_str(&format!("    and {} more\n", entry.files - entry.changes.len()));
        }
        text
    }

    fn state(&self, state: &Checkpoint, audience: StdoutProperties) -> String {
        let mut text = String::new();
        push(&mut text, &time(state.at_ms, &self.zone, self.now), DIM, audience);
        let calls = state.calls.iter().map(|call| plain(call)).collect::<Vec<_>>().join("; ");
        let n_files = usize::try_from(state.files).unwrap_or(usize::MAX);
        text.push_str(&format!("  {}  {}", fit(&calls, audience), count(n_files, "file")));
        push(&mut text, &format!("  checkpoint {}\n", state.number), DIM, audience);

        for CheckpointFile { path, change } in &state.changes {
            text.push_str(&format!("    {}  ", letter(*change)));
            push(&mut text, &fit(path, audience), PATH, audience);
            text.push('\n');
        }

        if state.changes.len() < n_files {
            text.push_str(&format!("    and {} more\n", n_files - state.changes.len()));
        }
        text
    }

    fn file(&self, file: &ChangedFile, text: &mut String, audience: StdoutProperties) {
        text.push_str(&plain(&file.change));
        text.push(' ');
        push(text, &fit(&file.path, audience), PATH, audience);
    }
}

/// Formats a time in milliseconds since 1970: without the date if it is of today.
pub(super) fn time(at_ms: i64, zone: &TimeZone, now: Timestamp) -> String {
    let at = Timestamp::from_millisecond(at_ms).ok().filter(|_| at_ms != 0);
    let Some(at) = at else { return "unknown".to_owned() };
    let (at, now) = (at.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let format = if at.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_are_shown_with_their_call_and_hostile_texts_on_one_line() {
        let data = json!({"entries": [
            {"undoId": "3-0a", "atMs": 1_000, "tool": "edit_file", "turn": 2, "files": 1,
             "changes": [{"path": "src/a.rs", "change": "changed", "diff": "--- a/x\n"}]},
            {"undoId": "2-0b\u{1b}[2J\n", "atMs": 0, "tool": "replace", "files": 3, "undoneBy": "4-0c",
             "changes": [{"path": "a\nb", "change": "changed"}, {"path": "b", "change": "changed"}]},
        ]});
        let list = ChangeList::deserialize(&data).unwrap();
        let now = Timestamp::from_second(0).unwrap();
        let format = Format { zone: TimeZone::UTC, now };
        let audience = StdoutProperties { is_terminal: true, is_colored: false };
        let text: String = list.entries.iter().map(|it| format.entry(it, audience)).collect();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "00:00:01  turn 2  edit_file  changed src/a.rs  3-0a");
        assert_eq!(lines[1], "--- a/x");
        assert!(lines[2].starts_with("unknown  replace  3 files  2-0b"), "{text}");
        assert!(lines[2].ends_with("  undone by 4-0c"), "{text}");
        assert_eq!(lines[5], "    and 1 more");
        assert_eq!(lines.len(), 6, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
