//! `term_read` and `term_write`: the screen of a terminal as text, and the input of a model.

use crate::arguments::Arguments;
use crate::bash::refuse_terminal;
use crate::call_limits::{CallLimits, StopCause};
use crate::jobs::{self, BackgroundJob, JobEnd};
use crate::terminals::{KeyError, ScreenView, Terminal, TypeError, key_bytes};
use crate::{Call, Output, Toolbox};
use quackd_process::Exit;
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_protocol::tools::{
    BadParameter, JobReference, MayBeEmpty, TERM_READ, TERM_WRITE, TermReadArguments,
    TermWriteArguments,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A screen that has not changed for this time counts as complete.
const QUIET: Duration = Duration::from_millis(100);

/// Most bytes that one call types.
const MAX_TYPED_BYTES: usize = 256 * 1024;

/// Reason for rejecting a call.
#[derive(Debug, thiserror::Error)]
enum TermError {
    #[error("Missing required parameter 'terminal'")]
    NoTerminal,
    #[error(transparent)]
    Parameter(#[from] BadParameter),
    #[error("{0}")]
    Find(String),
    #[error("'{0}' has no terminal; bash with \"tty\": true starts a command on one")]
    HasNone(String),
    #[error("term_write needs 'text' or 'keys'")]
    Nothing,
    #[error("The text is longer than {MAX_TYPED_BYTES} bytes")]
    TooLong,
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A job, and its terminal.
struct Found {
    job: Arc<BackgroundJob>,
    terminal: Arc<Terminal>,
}

/// Shows the screen, at once or after a change.
pub(crate) async fn term_read(
    toolbox: &Toolbox,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let TermReadArguments { terminal, history, wait_ms } =
        TermReadArguments::of(arguments.object());
    let request = || Ok::<_, TermError>((find(toolbox, terminal)?, history?, wait_ms?));
    let (found, history, wait_ms) = match request() {
        Ok(request) => request,
        Err(error) => return Output::error(error),
    };

    let until = after(wait_ms, bounds);
    let change = async {
        if wait_ms != 0 {
            found.terminal.news().await;
        }
    };
    match within(change, until, bounds).await {
        Ok(()) => answer(&found, usize::try_from(history).unwrap_or(usize::MAX)),
        Err(cutoff) => Output::cut_off(TERM_READ.name, bounds, cutoff),
    }
}

/// Types text and keys, and shows the screen once it is quiet.
pub(crate) async fn term_write(
    toolbox: &Toolbox,
    call: &Call,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    if let Some(refused) = refuse_terminal(toolbox, call) {
        return refused;
    }
    let (found, typed, wait_ms) = match write_request(toolbox, arguments) {
        Ok(request) => request,
        Err(error) => return Output::error(error),
    };

    let number = match found.terminal.queue(&typed) {
        Ok(number) => number,
        Err(TypeError::Ended) => {
            let Output { text, data, .. } = answer(&found, 0);
            let ended = format!("{} has ended; nothing was typed\n{text}", found.job.id);
            return Output { data, ..Output::error(ended) };
        }
        Err(error @ TypeError::Full) => return Output::error(error),
    };

    let until = after(wait_ms, bounds);
    let settled = async {
        found.terminal.typed(number).await;
        found.terminal.quiet(QUIET).await;
    };
    match within(settled, until, bounds).await {
        Ok(()) => answer(&found, 0),
        Err(cutoff) => Output::cut_off(TERM_WRITE.name, bounds, cutoff),
    }
}

/// Reads the arguments of `term_write`: the terminal, the bytes to type, and the longest wait in milliseconds.
fn write_request(
    toolbox: &Toolbox,
    arguments: &Arguments,
) -> Result<(Found, Vec<u8>, u64), TermError> {
    let TermWriteArguments { terminal, text: MayBeEmpty(text), keys, wait_ms } =
        TermWriteArguments::of(arguments.object());
    let found = find(toolbox, terminal)?;
    let (keys, wait_ms) = (keys?, wait_ms?);

    let is_application = found.terminal.has_application_cursor();
    let mut typed = text.unwrap_or_default().into_bytes();
    for key in &keys {
        typed.extend(key_bytes(key, is_application)?);
    }
    match typed.len() {
        0 => Err(TermError::Nothing),
        1..=MAX_TYPED_BYTES => Ok((found, typed, wait_ms)),
        _ => Err(TermError::TooLong),
    }
}

fn find(toolbox: &Toolbox, JobReference(reference): JobReference) -> Result<Found, TermError> {
    let reference = reference.ok_or(TermError::NoTerminal)?;
    let job = toolbox.state.jobs.find(&reference);
    let job = job.map_err(|error| TermError::Find(error.to_string()))?;
    let terminal = job.terminal.clone().ok_or_else(|| TermError::HasNone(job.id.clone()))?;
    Ok(Found { job, terminal })
}

/// Returns the end of a wait, which is never longer than the call.
fn after(wait_ms: u64, bounds: &CallLimits) -> Instant {
    let until = Instant::now().checked_add(Duration::from_millis(wait_ms));
    until.unwrap_or(bounds.deadline).min(bounds.deadline)
}

/// Waits for something, at most until a time.
async fn within(
    wait: impl Future<Output = ()>,
    until: Instant,
    bounds: &CallLimits,
) -> Result<(), StopCause> {
    tokio::select! {
        biased;
        () = bounds.cancel.cancelled() => Err(StopCause::Aborted),
        () = wait => Ok(()),
        () = tokio::time::sleep_until(until.into()) => Ok(()),
    }
}

/// Shows the screen, and the end of the program.
fn answer(Found { job, terminal }: &Found, history: usize) -> Output {
    let view = terminal.view(history);
    let (_, end) = job.glance();

    let ScreenView { size, cursor, .. } = &view;
    let mut text = format!("{}{}", view.history, view.text);
    let excess = text.len().saturating_sub(MAX_OUTPUT_BYTES);
    text.drain(..text.ceil_char_boundary(excess));

    let (row, column) = (u32::from(cursor.row) + 1, u32::from(cursor.col) + 1);
    text.push_str(&format!(
        "\n[{}: {}\u{d7}{}, cursor row {row}, column {column}]",
        job.id, size.cols, size.rows
    ));
    if end.is_some() {
        jobs::push_closing(&mut text, job, end.as_ref());
    }
    Output { data: Some(data(job, &view, end.as_ref()).into()), ..Output::success(text) }
}

/// Returns the screen as data. Positions count from 0.
fn data(job: &BackgroundJob, view: &ScreenView, end: Option<&JobEnd>) -> Value {
    let ScreenView { size, cursor, is_alternate, title, text, .. } = view;
    let mut data = json!({
        "terminal": job.id,
        "cols": size.cols,
        "rows": size.rows,
        "cursor": cursor,
        "alternate": is_alternate,
        "title": title,
        "text": text,
        "running": end.is_none(),
    });

    let exit = end.and_then(|end| end.finished.as_ref()).map(|finished| finished.exit);
    let exit = exit.map(|exit| match exit {
        Exit::Code(code) => ("exitCode", code),
        Exit::Signal(signal) => ("signal", signal),
    });
    if let (Some(object), Some((name, number))) = (data.as_object_mut(), exit) {
        object.insert(name.to_owned(), number.into());
    }
    data
}
