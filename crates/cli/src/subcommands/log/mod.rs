//! `quack log`: shows the calls of all clients from the journal. [`records`] reads it, [`row`] shows a call.
//!
//! With `-f` the directory is polled every 200 ms, as by `quack logs`.

pub(crate) mod records;
pub(crate) mod row;

use self::records::{CallFilter, CallReader, SessionFilter, is_gap};
use self::row::CallFormat;
use crate::args::log::{LogArgs, LogShowArgs, LogVerb};
use crate::connect::connect;
use crate::directory;
use crate::display::plain;
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, StdoutState};
use crate::session_ref;
use crate::time_format::moment;
use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_client::ClientError;
use quackd_home::own_file::read_blocking;
use quackd_home::{Home, is_risky_workspace};
use quackd_protocol::client::{FindBy, FindData, FindParams, SessionsParams};
use quackd_protocol::journal::CallRecord;
use quackd_protocol::limits::MAX_SPILL_BYTES;
use quackd_protocol::output::with_signal;
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// Interval between polls of the journal.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Timeout for what only a daemon knows: labels, and the session of a reference.
const DAEMON_LIMIT: Duration = Duration::from_secs(1);

/// Default number of calls.
const CALLS: usize = 50;

/// Error if the current directory is not a workspace.
const NO_WORKSPACE: &str =
    "this directory is no workspace; name one with -C DIR or --session REF, or use --all";

/// Prints the calls of the chosen session or workspace. With `-f`, prints further ones until
/// Ctrl-C.
pub(crate) async fn run(args: LogArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    let labels = labels(&home).await;
    let format = CallFormat { zone: TimeZone::system(), now: Timestamp::now(), labels };
    if let Some(LogVerb::Show(args)) = &args.verb {
        return show(args, &home, &format, output).await;
    }

    let filter = filter(&args, &home).await?;
    let all_if_since = if filter.since.is_some() { usize::MAX } else { CALLS };
    let max = args.lines.unwrap_or(all_if_since);

    // Without these conditions, no call means that the session or the directory is probably a wrong one.
    let is_every_call = filter.since.is_none() && filter.agent.is_none() && max != 0;
    let unknown = match &filter.session {
        Some(SessionFilter::Reference(name)) if is_every_call => Some(name.clone()),
        _ => None,
    };
    let directory = filter.workspace.clone().filter(|_| is_every_call && !args.follow);
    let reader = CallReader::new(home.journal_dir(), filter);
    if let Some(path) = directory
        && reader.last_blocking(CALLS).context("cannot read the journal")?.0.iter().all(is_gap)
        && !has_session(&home, &path).await
    {
        let text = format!("{} has no session, and no call in the journal", plain(&path));
        return Err(session_ref::advised(&anyhow::anyhow!(text)).into());
    }

    if !args.follow {
        return list(&reader, max, unknown, &format, output).await;
    }
    until_ctrl_c(follow(&reader, max, &format, output)).await
}

/// Runs the follow mode of `quack log` or `quack logs` until Ctrl-C, which is its normal end.
pub(crate) async fn until_ctrl_c(
    follow: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Ok(ExitCode::Ok)
        }
        ended = follow => ended,
    }
}

async fn filter(args: &LogArgs, home: &Home) -> anyhow::Result<CallFilter> {
    let since = args.since.as_deref().map(|text| moment(text, Timestamp::now()));
    let reference = args.session.as_ref().or(args.option.as_ref());
    let session = match reference {
        Some(reference) => Some(session(home, reference).await?),
        None => None,
    };

    // A session identifies its calls: its workspace may be another directory than the current one.
    let workspace = match &args.dir {
        Some(dir) => Some(directory::workspace(Some(dir), false)?),
        None if args.all || session.is_some() => None,
        None => {
            let here = session_ref::current().filter(|path| !is_risky_workspace(path));
            Some(here.ok_or_else(|| CliError::usage(NO_WORKSPACE))?)
        }
    };

    let since = since.transpose().map_err(CliError::usage)?;
    Ok(CallFilter { session, workspace, agent: args.agent.clone(), since })
}

/// Resolves a reference. Without a daemon, and for a session that it does not know, the journal's own names are used.
///
/// # Errors
/// If several sessions match the reference.
async fn session(home: &Home, reference: &str) -> Result<SessionFilter, ClientError> {
    let by_name = SessionFilter::Reference(reference.to_owned());
    let Ok(client) = connect(home).await else { return Ok(by_name) };

    let params = FindParams { session_id: Some(reference.to_owned()), path: None, own: None };
    match client.call_within(params, DAEMON_LIMIT).await {
        Ok(FindData { session: Some(info) }) if info.by == FindBy::Reference => {
            Ok(SessionFilter::Id(info.session_id.0))
        }
        // Without a code, the reference matches several sessions.
        Err(error @ ClientError::Refused { code: None, .. }) => Err(error),
        _ => Ok(by_name),
    }
}

/// Whether the daemon knows a session of a workspace. False if no daemon replies in time.
async fn has_session(home: &Home, workspace: &str) -> bool {
    let Ok(client) = connect(home).await else { return false };
    let params = FindParams { session_id: None, path: Some(workspace.to_owned()), own: None };
    let reply = client.call_within(params, DAEMON_LIMIT).await;
    let session = reply.ok().and_then(|data| data.session);
    session.is_some_and(|session| session.workspace_path == workspace)
}

/// Labels by session id. `None` if no daemon replies in time.
pub(crate) async fn labels(home: &Home) -> Option<HashMap<String, String>> {
    let request = async {
        let client = connect(home).await.ok()?;
        let all = SessionsParams { all: Value::Bool(true), ..SessionsParams::default() };
        client.call_within(all, DAEMON_LIMIT).await.ok()
    };

    // The whole request has the limit, because connecting to a hung daemon takes time too.
    let data = tokio::time::timeout(DAEMON_LIMIT, request).await.ok().flatten()?;
    // An older daemon sends no labels.
    let labelled = data.sessions.into_iter().filter(|session| !session.label.is_empty());
    Some(labelled.map(|session| (session.id.0, session.label)).collect())
}

async fn list(
    reader: &CallReader,
    max: usize,
    unknown: Option<String>,
    format: &CallFormat,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let (mut calls, _) = reader.last_blocking(max).context("cannot read the journal")?;
    // The journal has them in the order of their ends.
    calls.sort_by_key(|call| call.at_ms);

    if let Some(name) = unknown.filter(|_| calls.is_empty()) {
        let text = format!("no session and no call in the journal is called {name}");
        return Err(CliError::failed(text).into());
    }

    if calls.is_empty() {
        output.note("no calls");
    }
    print(&calls, format, output).await?;
    Ok(ExitCode::Ok)
}

async fn follow(
    reader: &CallReader,
    max: usize,
    format: &CallFormat,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let (mut calls, mut position) = reader.last_blocking(max).context("cannot read the journal")?;
    loop {
        let is_gone = if calls.is_empty() {
            StdoutState::look() == StdoutState::Gone
        } else {
            print(&calls, format, output).await? == StdoutState::Gone
        };
        if is_gone {
            return Ok(ExitCode::Ok);
        }

        tokio::time::sleep(POLL_INTERVAL).await;
        calls = reader.next_blocking(&mut position).context("cannot read the journal")?;
    }
}

async fn print(
    calls: &[CallRecord],
    format: &CallFormat,
    output: CliOutput,
) -> anyhow::Result<StdoutState> {
    let mut text = String::new();
    for call in calls {
        if output.is_json() {
            text.push_str(&serde_json::to_string(call)?);
            text.push('\n');
        } else {
            text.push_str(&format.row(call));
        }
    }
    Ok(output.piece(text).await?)
}

async fn show(
    args: &LogShowArgs,
    home: &Home,
    format: &CallFormat,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let reader = CallReader::new(home.journal_dir(), CallFilter::default());
    let call = reader.call_blocking(&args.call).context("cannot read the journal")?;
    let call = call.ok_or_else(|| {
        CliError::failed("the journal has no call with this id; `quack log --all` lists them")
    })?;

    let whole = full_output(&call, home);
    if output.is_json() {
        let mut document = serde_json::to_value(&call)?;
        if let (Some(whole), Some(document)) = (&whole, document.as_object_mut()) {
            document.insert("text".to_owned(), whole.as_str().into());
        }
        output.document(&document)?;
        return Ok(ExitCode::Ok);
    }

    let home_dir = std::env::var("HOME").ok();
    output.text(&format.details(&call, home_dir.as_deref()))?;
    // The record has the start of the text only.
    if let Some(text) = whole.or_else(|| call.text.clone()) {
        output.text("\n")?;
        output.answer_lines(&with_signal(&text, call.signal))?;
    }
    Ok(ExitCode::Ok)
}

/// Reads the file with the whole output of a call, if it still exists. The path comes from the worker, so only files in
/// the run directory of the session are read, and no link is followed.
fn full_output(call: &CallRecord, home: &Home) -> Option<String> {
    let path = PathBuf::from(call.full_output_path.as_ref()?);
    let run = home.session_run_dir(&call.session_id.0).ok()?;
    // A worker resolves the links on the way to it.
    let run = run.canonicalize().ok()?;

    if path.parent() != Some(run.as_path()) {
        return None;
    }
    let bytes = read_blocking(&path, MAX_SPILL_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
