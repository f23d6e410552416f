//! `quack follow`: shows a session's events.
//!
//! [`session_view`] is the event loop, shared with `quack [DIR]` and `quack say`. It uses:
//! - [`follow_connection`]: the connection. [`requests`]: its requests.
//! - [`screen`]: the output. [`asking`], with [`stdin_lines`] and [`question_queue`]: the questions and the input.
//! - [`speaker`]: the prompt of `quack [DIR]`, with [`prompt`], [`status`] and its commands [`slash`]. [`footer`]: the
//!   last rows of the terminal.
//! - [`history`]: the app's history.
//! - [`turn_tracker`] and [`turn_filter`]: the outcome and the events of one turn. [`turn_result`], with
//!   [`changed_files`]: its result.

pub(crate) mod asking;
pub(crate) mod changed_files;
pub(crate) mod follow_connection;
mod footer;
mod history;
pub(crate) mod prompt;
mod question_queue;
pub(crate) mod requests;
mod screen;
pub(crate) mod session_view;
mod slash;
mod speaker;
mod status;
pub(crate) mod stdin_lines;
mod turn_filter;
pub(crate) mod turn_result;
mod turn_tracker;

pub(crate) use self::footer::screen_size;
pub(crate) use self::screen::can_move;

use self::follow_connection::FollowConnection;
use self::session_view::{InputMode, Interrupts, SessionView, is_person};
use self::status::model_name;
use crate::args::DisplayArgs;
use crate::args::sessions::{FollowArgs, FollowSince};
use crate::connect::start_and_connect;
use crate::display;
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM};
use crate::render::DisplayOptions;
use crate::session_ref::{Missing, Wanted};
use crate::subcommands::log::records::{CallFilter, CallReader, SessionFilter};
use crate::subcommands::log::row::CallFormat;
use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_home::Home;
use quackd_protocol::client::{FollowData, ProcessState};
use quackd_protocol::journal::{CallRecord, JOB_END};
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Tier;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum length of a session's description on the first line, in characters.
const MAX_STATE: usize = 160;

/// Number of earlier calls that `quack follow` shows first.
const EARLIER_CALLS: usize = 5;

/// Runs the subcommand until the user ends it, or the session is deleted.
pub(crate) async fn run(args: FollowArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::catch()?;
    // The start of a daemon takes seconds, during which Ctrl-C must work.
    let view = tokio::select! {
        biased;
        _ = interrupts.next() => return Ok(ExitCode::Interrupted),
        view = begin(args, output) => view,
    };
    view?.run(&mut interrupts).await
}

async fn begin(args: FollowArgs, output: CliOutput) -> anyhow::Result<SessionView> {
    let reference = Wanted::of(&args.which.into_which())?;
    let daemon = start_and_connect(output).await?;
    let info = reference.one(&daemon.client, Missing::Refuse).await?;
    let session = info.session_id.0;

    let client = Arc::new(daemon.client);
    let (seq, since) = match args.since {
        Some(FollowSince::Event(seq)) => (Some(seq), None),
        Some(FollowSince::Time(since)) => (None, Some(since)),
        None => (None, None),
    };

    let mut watch =
        FollowConnection::begin(client, session.clone(), seq, is_person(output)).await?;
    // After the follow has begun, so that no call is between the journal and the events.
    let start = Timestamp::now();
    let earlier = earlier_calls(&session, &info.label, since, start, seq.is_some(), output)?;

    if !output.is_json() {
        // The header names the confinement, which a starting worker does not have yet.
        watch.settle().await;
        let home_dir = std::env::var("HOME").ok();
        output.text(&header(&info.label, watch.followed(), home_dir.as_deref()))?;
    }

    output.piece(earlier).await?;
    Ok(SessionView::new(watch, look(args.look), InputMode::Answers, output))
}

/// Returns the calls of the session in the journal that ended by a time: those since another time, or without one the last
/// few, for display only. Later ones are events.
fn earlier_calls(
    session: &str,
    label: &str,
    since: Option<Timestamp>,
    until: Timestamp,
    has_seq: bool,
    output: CliOutput,
) -> anyhow::Result<String> {
    // Without a time, the lines of a script are the daemon's events only.
    if since.is_none() && (has_seq || output.is_json()) {
        return Ok(String::new());
    }

    let home = Home::from_process_env_blocking()?;
    let of_session = Some(SessionFilter::Id(session.to_owned()));
    let filter = CallFilter { session: of_session, since, ..CallFilter::default() };
    let max = if since.is_some() { usize::MAX } else { EARLIER_CALLS };
    let reader = CallReader::new(home.journal_dir(), filter);
    let (mut calls, _) = reader.last_blocking(max).context("cannot read the journal")?;
    // Later calls are events of the follow.
    calls.retain(|call| has_ended_by(call, until));

    if output.is_json() {
        let event = |call| json!({"event": "quack_call", "sessionId": session, "data": call});
        return Ok(calls.iter().map(|call| format!("{}\n", event(call))).collect());
    }

    let labels = Some(HashMap::from([(session.to_owned(), label.to_owned())]));
    let format = CallFormat { zone: TimeZone::system(), now: Timestamp::now(), labels };
    Ok(calls.iter().map(|call| format.row(call)).collect())
}

fn has_ended_by(call: &CallRecord, time: Timestamp) -> bool {
    // The record of a background job has the time of its end, that of a call the time of its arrival.
    let is_job = call.tool == JOB_END;
    let duration_ms = if is_job { 0 } else { i64::try_from(call.duration_ms).unwrap_or(i64::MAX) };
    call.at_ms.saturating_add(duration_ms) <= time.as_millisecond()
}

/// Converts the arguments to display options.
pub(crate) fn look(args: DisplayArgs) -> DisplayOptions {
    DisplayOptions { show_thinking: args.show_thinking, verbose: args.verbose }
}

/// Returns the first line: the session, its confinement, and the model of its Pi if known.
pub(crate) fn header(label: &str, followed: &FollowData, home_dir: Option<&str>) -> String {
    let name = display::name(label);
    let path = display::path(&followed.workspace_path, home_dir);

    let worker = &followed.worker;
    let words: Vec<&str> = [worker.tier.map(Tier::in_words), worker.policy.map(Profile::name)]
        .into_iter()
        .flatten()
        .collect();
    let mut state = match (words.is_empty(), worker.state) {
        (false, _) => words.join(" · "),
        (true, ProcessState::Absent) => "its worker starts with the first call".to_owned(),
        (true, state) => state.name().to_owned(),
    };

    if let Some(pi) = &followed.session_state {
        state.push_str(&format!(" · {}", model_name(pi).unwrap_or("default")));
        if let Some(level) = pi.get("thinkingLevel").and_then(Value::as_str) {
            state.push_str(&format!(" · thinking:{level}"));
        }
    }

    format!("{BOLD}{name}{BOLD:#}  {path}  {DIM}[{}]{DIM:#}\n", display::cut(&state, MAX_STATE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_has_ended_after_its_duration_and_a_job_at_its_time() {
        let record = |tool: &str| -> CallRecord {
            serde_json::from_value(
                json!({"id": "x", "atMs": 1_000, "sessionId": "s", "sessionName": "n",
                "workspacePath": "/w", "tool": tool, "outcome": "ok", "durationMs": 500}),
            )
            .unwrap()
        };
        let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
        assert!(!has_ended_by(&record("bash"), at(1_499)));
        assert!(has_ended_by(&record("bash"), at(1_500)));
        assert!(has_ended_by(&record(JOB_END), at(1_000)));
    }

    #[test]
    fn the_first_line_names_the_session_its_confinement_and_its_model() {
        let ready = json!({"state": "ready", "pid": 7, "restarts": 0, "tier": "B", "policy": "workspace-write"});
        let none = Value::Null;
        for (worker, pi, shown) in [
            (ready.clone(), none.clone(), "[confined · workspace-write]"),
            (
                ready.clone(),
                json!({"model": {"id": "gpt-4o"}, "thinkingLevel": "off"}),
                "[confined · workspace-write · gpt-4o · thinking:off]",
            ),
            (ready, json!({"model": null}), "[confined · workspace-write · default]"),
            (
                json!({"state": "absent", "restarts": 0}),
                none.clone(),
                "[its worker starts with the first call]",
            ),
            (json!({"state": "failed", "restarts": 0}), none.clone(), "[failed]"),
            (json!({"state": "\u{1b}[2J", "restarts": 0}), none, "[unknown]"),
        ] {
            let followed: FollowData = serde_json::from_value(json!({
                "sessionId": "s", "sessionName": "duck\n1", "workspacePath": "/home/ada/app",
                "isRunning": true, "sessionState": pi, "appHistoryFile": "", "appHistoryExists": false,
                "appHistorySizeBytes": 0, "seq": 3, "epoch": "e", "resync": false, "replayed": 0,
                "worker": worker
            }))
            .unwrap();
            let line =
                anstream::adapter::strip_str(&header("app/duck\n1", &followed, Some("/home/ada")))
                    .to_string();
            assert_eq!(line, format!("app/duck\u{fffd}1  ~/app  {shown}\n"));
        }
    }
}
