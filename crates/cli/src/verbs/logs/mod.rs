//! `quack logs`: the daemon's log for a person, or as it is for a script. Works without a daemon.
//!
//! [`tail`] reads the files, [`filter`] says which lines are wanted, [`mod@line`] makes a line readable.
//!
//! With `-f` the file is looked at five times a second. A watcher of the kernel's would need a directory
//! watch for the rotation, an instance of which each user has few, and works on no network file system;
//! a look is one `stat`.

mod filter;
mod line;
mod tail;

use self::filter::Filter;
use self::line::Format;
use self::tail::{Line, Tail};
use crate::args::logs::LogsArgs;
use crate::connect::connect;
use crate::display::{self, plain};
use crate::exit::{Exit, Fault};
use crate::output::{Output, Reader};
use crate::which::{Missing, Wanted};
use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_client::ClientError;
use quackd_home::Home;
use quackd_protocol::client::{SessionsData, SessionsParams};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// Time between two looks at the log.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Longest wait for the labels of sessions.
const LABELS_LIMIT: Duration = Duration::from_secs(1);

/// Lines that are shown unless somebody says otherwise.
const LINES: usize = 50;

/// Runs the verb.
pub(crate) async fn run(args: LogsArgs, output: Output) -> anyhow::Result<Exit> {
    let home = Home::from_process_env_blocking()?;
    let path = home.log_file();
    let since = args.since.as_deref().map(|text| filter::moment(text, Timestamp::now()));
    let filter = Filter {
        since: since.transpose().map_err(Fault::usage)?,
        level: args.level,
        session: match &args.session {
            Some(reference) => Some(session(&home, reference, &path, output).await?),
            None => None,
        },
    };
    let labels = if output.is_json() { HashMap::new() } else { labels(&home).await };
    let format = Format::new(TimeZone::system(), Timestamp::now()).with_labels(labels);
    if !args.follow {
        return show(&args, &filter, &path, format, output).await;
    }
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Ok(Exit::Ok)
        }
        ended = show(&args, &filter, &path, format, output) => ended,
    }
}

/// The id of a session that the daemon knows. One that is deleted, or that nobody can be asked about, is looked for
/// as it was named.
///
/// # Errors
/// Neither the daemon nor the log knows it; of reading the log.
async fn session(
    home: &Home,
    reference: &str,
    path: &Path,
    output: Output,
) -> anyhow::Result<String> {
    let wanted = Wanted::reference(Some(reference.to_owned()));
    let error = match connect(home).await {
        Ok(client) => match wanted.one(&client, Missing::UseActive).await {
            Ok(found) => return Ok(found.session_id.0),
            Err(error) => error,
        },
        Err(error) => error.into(),
    };
    if is_in_log_blocking(reference, path).with_context(|| cannot_read(path))? {
        output.note(&format!("{error}; looking for lines with the id {}", plain(reference)));
        return Ok(reference.to_owned());
    }
    Err(match error.downcast_ref() {
        Some(ClientError::Refused(_)) => error,
        _ => Fault::failed(format!(
            "{error}; and the log has no line about a session with the id {}",
            display::name(reference)
        ))
        .into(),
    })
}

/// Whether a line of the log is about a session with this id.
fn is_in_log_blocking(id: &str, path: &Path) -> std::io::Result<bool> {
    let filter = Filter { session: Some(id.to_owned()), ..Filter::default() };
    let mut tail = Tail::begin_blocking(path, usize::MAX)?;
    loop {
        let lines = tail.read_blocking()?;
        if lines.iter().any(|line| filter.lets(line)) {
            return Ok(true);
        }
        if lines.is_empty() {
            return Ok(tail.rest().iter().any(|line| filter.lets(line)));
        }
    }
}

/// Labels by session id. Empty if no daemon replies in time: the log is readable without one.
async fn labels(home: &Home) -> HashMap<String, String> {
    let asking = async {
        let client = connect(home).await.ok()?;
        let all = SessionsParams { all: Value::Bool(true), ..SessionsParams::default() };
        client.request::<_, SessionsData>("sessions", all, LABELS_LIMIT).await.ok()
    };
    let known = tokio::time::timeout(LABELS_LIMIT, asking).await.ok().flatten();
    let sessions = known.into_iter().flat_map(|known| known.sessions);
    let labelled = sessions.filter(|session| !session.label.is_empty());
    labelled.map(|session| (session.id.0, session.label)).collect()
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

async fn show(
    args: &LogsArgs,
    filter: &Filter,
    path: &Path,
    mut format: Format,
    output: Output,
) -> anyhow::Result<Exit> {
    let cannot_read = || cannot_read(path);
    let all_if_since = if filter.since.is_some() { usize::MAX } else { LINES };
    let wanted = args.lines.unwrap_or(all_if_since);
    // Which lines are the last wanted ones is not known before all are read.
    let from = if filter.is_any() { usize::MAX } else { wanted };
    let mut tail = Tail::begin_blocking(path, from).with_context(cannot_read)?;
    let mut last = (from != wanted).then(VecDeque::new);
    if tail.is_empty() {
        let what = if args.follow { "waiting for the log" } else { "there is no log yet" };
        output.note(&format!("{what}: {}", path.display()));
    }
    loop {
        let mut lines = tail.read_blocking().with_context(cannot_read)?;
        let is_end = lines.is_empty();
        if is_end && !args.follow {
            lines.extend(tail.rest());
        }
        lines.retain(|line| filter.lets(line));
        if let Some(kept) = &mut last {
            kept.extend(lines.drain(..));
            kept.drain(..kept.len().saturating_sub(wanted));
            if is_end {
                lines.extend(last.take().unwrap_or_default());
            }
        }
        if !lines.is_empty() && print(&lines, &mut format, output).await? == Reader::Gone {
            return Ok(Exit::Ok);
        }
        match (is_end, args.follow) {
            (false, _) => {}
            (true, false) => return Ok(Exit::Ok),
            (true, true) if Reader::look() == Reader::Gone => return Ok(Exit::Ok),
            (true, true) => sleep(POLL_INTERVAL).await,
        }
    }
}

async fn print(lines: &[Line], format: &mut Format, output: Output) -> anyhow::Result<Reader> {
    let mut text = String::new();
    for line in lines {
        if output.is_json() {
            text.push_str(&line::json(line));
        } else {
            text.push_str(&format.readable(line));
        }
        text.push('\n');
    }
    Ok(output.piece(text).await?)
}
