//! `quack logs`: prints the daemon's log as text or unchanged. Works without a daemon.
//!
//! [`tail`] reads the files, [`filter`] selects lines, and [`mod@line`] formats them.
//!
//! With `-f` the file is polled every 200 ms with one `stat`. A kernel watcher would need a directory watch for the
//! rotation, and uses one of the user's few inotify instances. It also does not work on network file systems.

mod filter;
mod line;
mod tail;

use self::filter::Filter;
use self::line::Format;
use self::tail::{LogLine, LogTail};
use crate::args::logs::LogsArgs;
use crate::connect::connect;
use crate::display::{self, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, StdoutState};
use crate::session_ref::{Missing, Wanted};
use crate::subcommands::log::{labels, until_ctrl_c};
use crate::time_format::moment;
use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_client::ClientError;
use quackd_home::Home;
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// Interval between polls of the log.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Default number of lines.
const LINES: usize = 50;

/// Prints lines until the end of the log, or with `-f` until Ctrl-C or until the reader is gone.
pub(crate) async fn run(args: LogsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    let path = home.log_file();
    let since = args.since.as_deref().map(|text| moment(text, Timestamp::now()));
    let filter = Filter {
        since: since.transpose().map_err(CliError::usage)?,
        level: args.level,
        session: match &args.session {
            Some(reference) => Some(session(&home, reference, &path, output).await?),
            None => None,
        },
    };

    // Only the text has labels. The log is readable without them.
    let labels = if output.is_json() { None } else { labels(&home).await };
    let format = Format::new(TimeZone::system(), Timestamp::now(), labels.unwrap_or_default());

    let printing = show(&args, &filter, &path, format, output);
    if args.follow { until_ctrl_c(printing).await } else { printing.await }
}

/// Resolves a session reference to an id. For a deleted session, or without a daemon, the reference itself is used as
/// the id.
///
/// # Errors
/// If neither the daemon nor the log contains the session, or the log cannot be read.
async fn session(
    home: &Home,
    reference: &str,
    path: &Path,
    output: CliOutput,
) -> anyhow::Result<String> {
    let choice = Wanted::reference(Some(reference.to_owned()));
    let error = match connect(home).await {
        Ok(client) => match choice.one(&client, Missing::Refuse).await {
            Ok(session) => return Ok(session.session_id.0),
            Err(error) => error,
        },
        Err(error) => error.into(),
    };

    // A deleted session still has lines in the log.
    if is_in_log_blocking(reference, path).with_context(|| cannot_read(path))? {
        output.note(&format!("{error}; looking for lines with the id {}", plain(reference)));
        return Ok(reference.to_owned());
    }

    Err(match error.downcast_ref() {
        Some(ClientError::Refused { .. }) => error,
        _ => CliError::failed(format!(
            "{error}; and the log has no line about a session with the id {}",
            display::name(reference)
        ))
        .into(),
    })
}

/// Whether a line of the log is about a session with this id.
fn is_in_log_blocking(id: &str, path: &Path) -> std::io::Result<bool> {
    let filter = Filter { session: Some(id.to_owned()), ..Filter::default() };
    let mut tail = LogTail::begin_blocking(path, usize::MAX)?;
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

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

async fn show(
    args: &LogsArgs,
    filter: &Filter,
    path: &Path,
    mut format: Format,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let cannot_read = || cannot_read(path);
    let all_if_since = if filter.since.is_some() { usize::MAX } else { LINES };
    let n_lines = args.lines.unwrap_or(all_if_since);

    // With a filter, all lines must be read to find the last matching ones.
    let from = if filter.is_any() { usize::MAX } else { n_lines };
    let mut tail = LogTail::begin_blocking(path, from).with_context(cannot_read)?;

    let mut last = (from != n_lines).then(VecDeque::new);

    if tail.is_empty() {
        let state_text = if args.follow { "waiting for the log" } else { "there is no log yet" };
        output.note(&format!("{state_text}: {}", path.display()));
    }

    loop {
        let mut lines = tail.read_blocking().with_context(cannot_read)?;
        let is_end = lines.is_empty();
        // With `-f`, the rest of an incomplete line may still arrive.
        if is_end && !args.follow {
            lines.extend(tail.rest());
        }

        lines.retain(|line| filter.lets(line));

        // Before the end of the log, any later line may be one of the last.
        if let Some(kept) = &mut last {
            kept.extend(lines.drain(..));
            kept.drain(..kept.len().saturating_sub(n_lines));
            if is_end {
                lines.extend(last.take().unwrap_or_default());
            }
        }

        if !lines.is_empty() && print(&lines, &mut format, output).await? == StdoutState::Gone {
            return Ok(ExitCode::Ok);
        }

        match (is_end, args.follow) {
            (false, _) => {}
            (true, false) => return Ok(ExitCode::Ok),
            (true, true) if StdoutState::look() == StdoutState::Gone => return Ok(ExitCode::Ok),
            (true, true) => sleep(POLL_INTERVAL).await,
        }
    }
}

async fn print(
    lines: &[LogLine],
    format: &mut Format,
    output: CliOutput,
) -> anyhow::Result<StdoutState> {
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
