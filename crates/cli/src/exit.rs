//! Exit codes: what a script learns without reading a word. Used by `main` and by the verbs.

use quackd_client::{ClientError, StartError};
use quackd_home::HomeError;
use quackd_protocol::client::ToolResult;
use quackd_protocol::plain::without_numbers;
use serde_json::{Value, json};
use std::process::ExitCode;

/// How an invocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok,
    /// What was asked for failed.
    Failed,
    /// It was asked wrongly; nothing was done.
    Usage,
    /// There is no daemon to ask, or none that can be understood.
    Unreachable,
    /// There was no room for it, or no time.
    BusyOrLate,
    /// A person pressed Ctrl-C.
    Interrupted,
    /// `quack tool --raw`: the code of the command, or one of [`raw`].
    OfCommand(u8),
    /// It was a daemon below a service manager, for which [`quackd_service::exit`] has codes of their own.
    OfDaemon(u8),
}

impl Exit {
    /// The number, as docs and scripts know it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::BusyOrLate => 4,
            Self::Interrupted => 130,
            Self::OfCommand(code) | Self::OfDaemon(code) => code,
        }
    }
}

impl Exit {
    /// The `code` of an error in `--json`.
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed | Self::OfCommand(_) | Self::OfDaemon(_) => "failed",
            Self::Usage => "usage",
            Self::Unreachable => "no_daemon",
            Self::BusyOrLate => "busy",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error of the daemon with advice for the user.
#[derive(Debug)]
pub(crate) struct Advised {
    pub(crate) error: ClientError,
    pub(crate) hint: String,
}

impl std::fmt::Display for Advised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.error, self.hint)
    }
}

impl std::error::Error for Advised {}

/// An error of the command line's own, which knows its exit.
#[derive(Debug)]
pub(crate) struct Fault {
    exit: Exit,
    text: String,
}

impl Fault {
    /// The verb was called in a way that cannot work.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, text: text.into() }
    }

    /// What was asked for could not be done.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, text: text.into() }
    }

    /// Who answers is not a daemon that this program can talk to.
    pub(crate) fn wrong_daemon(text: impl Into<String>) -> Self {
        Self { exit: Exit::Unreachable, text: text.into() }
    }

    /// The daemon that served the verb is gone.
    pub(crate) fn daemon_gone(text: impl Into<String>) -> Self {
        Self { exit: Exit::Unreachable, text: text.into() }
    }

    /// Somebody else uses what the verb needs for itself.
    pub(crate) fn busy(text: impl Into<String>) -> Self {
        Self { exit: Exit::BusyOrLate, text: text.into() }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

/// The exit of a verb that ended with `error`.
pub(crate) fn of_error(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return of_client_error(error);
        }
        if let Some(advised) = cause.downcast_ref::<Advised>() {
            return of_client_error(&advised.error);
        }
        if let Some(fault) = cause.downcast_ref::<Fault>() {
            return fault.exit;
        }
        if cause.is::<StartError>() || cause.is::<HomeError>() {
            return Exit::Unreachable;
        }
    }
    Exit::Failed
}

/// `error` and its causes as one text, with the way out where there is one.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    match way_out(error) {
        Some(way_out) => format!("{error:#}; {way_out}"),
        None => format!("{error:#}"),
    }
}

fn way_out(error: &anyhow::Error) -> Option<&'static str> {
    let can_start = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(ClientError::NotRunning { .. }))
    };
    error.chain().any(can_start).then_some("`quack` starts it")
}

/// `error` as the document that `--json` prints.
pub(crate) fn document(error: &anyhow::Error) -> Value {
    let (message, hint) = match error.downcast_ref::<Advised>() {
        Some(advised) => (advised.error.to_string(), Some(advised.hint.clone())),
        None => (format!("{error:#}"), way_out(error).map(str::to_owned)),
    };
    describe(of_error(error), &message, hint.as_deref())
}

/// A refused command line as the document that `--json` prints. clap's text is a sentence, then advice.
pub(crate) fn usage_document(error: &clap::Error) -> Value {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim();
    let (message, hint) = match text.split_once("\n\n") {
        Some((message, hint)) => (message, Some(hint.trim())),
        None => (text, None),
    };
    describe(Exit::Usage, message, hint)
}

/// A verb that was interrupted, as the document that `--json` prints.
pub(crate) fn interrupted_document() -> Value {
    describe(Exit::Interrupted, "interrupted", None)
}

fn describe(exit: Exit, message: &str, hint: Option<&str>) -> Value {
    json!({"error": {"code": exit.name(), "message": without_numbers(message), "hint": hint}})
}

fn of_client_error(error: &ClientError) -> Exit {
    match error {
        ClientError::Refused(_) | ClientError::Unexpected { .. } => Exit::Failed,
        ClientError::TooLong { .. } => Exit::Usage,
        ClientError::Timeout { method, .. } if method != "connect" => Exit::BusyOrLate,
        _ => Exit::Unreachable,
    }
}

/// The exit of `quack tool` with this result.
pub(crate) fn of_tool(result: &ToolResult) -> Exit {
    let info = &result.info;
    // A command may print `Error:` and succeed; whatever else begins so did not run.
    let says_error = info.exit_code.is_none() && result.text.starts_with("Error:");
    if info.busy || info.timed_out {
        Exit::BusyOrLate
    } else if info.is_error || info.worker_died || info.aborted || says_error {
        Exit::Failed
    } else {
        Exit::Ok
    }
}

/// Exit codes of quack itself with `quack tool --raw`, as `timeout` and `env` have them.
pub(crate) mod raw {
    /// The deadline ended the command.
    pub(crate) const TIMED_OUT: u8 = 124;
    /// The command did not run, or its end is not known.
    pub(crate) const FAILED: u8 = 125;
    /// Added to the number of the signal that ended the command.
    pub(crate) const SIGNAL: u8 = 128;
}

/// The exit of `quack tool --raw` with this result.
pub(crate) fn of_raw(result: &ToolResult) -> Exit {
    let info = &result.info;
    let code = match (info.exit_code, info.signal) {
        _ if info.timed_out => raw::TIMED_OUT,
        // A code has eight bits.
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(raw::FAILED),
        (None, Some(signal)) => {
            u8::try_from(signal).map_or(raw::FAILED, |signal| raw::SIGNAL.saturating_add(signal))
        }
        (None, None) => raw::FAILED,
    };
    Exit::OfCommand(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::client::ToolInfo;
    use std::time::Duration;

    fn timeout(method: &str) -> ClientError {
        ClientError::Timeout { method: method.to_owned(), after: Duration::from_secs(1) }
    }

    #[test]
    fn an_error_exits_by_its_cause_whatever_stands_around_it() {
        for (error, expected) in [
            (anyhow::anyhow!("other"), Exit::Failed),
            (Fault::usage("no").into(), Exit::Usage),
            (Fault::wrong_daemon("old").into(), Exit::Unreachable),
            (Fault::daemon_gone("gone").into(), Exit::Unreachable),
            (Fault::busy("later").into(), Exit::BusyOrLate),
            (ClientError::NotRunning { path: "/s".into() }.into(), Exit::Unreachable),
            (ClientError::Disconnected.into(), Exit::Unreachable),
            (ClientError::Protocol("x".to_owned()).into(), Exit::Unreachable),
            (timeout("connect").into(), Exit::Unreachable),
            (timeout("quack.tool").into(), Exit::BusyOrLate),
            (ClientError::TooLong { bytes: 9 }.into(), Exit::Usage),
            (ClientError::Refused("no".to_owned()).into(), Exit::Failed),
        ] {
            let text = error.to_string();
            assert_eq!(of_error(&error.context("while testing")), expected, "{text}");
        }
    }

    #[test]
    fn a_missing_daemon_comes_with_the_way_to_start_one() {
        let missing = ClientError::NotRunning { path: "/s".into() };
        assert_eq!(
            explain(&missing.into()),
            "the daemon is not running (no listener on /s); `quack` starts it"
        );
        assert_eq!(explain(&ClientError::Disconnected.into()), "the daemon closed the connection");
    }

    #[test]
    fn a_tool_exits_by_its_result() {
        let ran = ToolInfo { exit_code: Some(0), ..ToolInfo::default() };
        for (text, info, expected) in [
            ("fine", ToolInfo::default(), Exit::Ok),
            ("Error: File not found at 'x'", ToolInfo::default(), Exit::Failed),
            ("Error: printed\n[Exit code: 0]", ran, Exit::Ok),
            (
                "x",
                ToolInfo { is_error: true, exit_code: Some(7), ..ToolInfo::default() },
                Exit::Failed,
            ),
            ("x", ToolInfo { worker_died: true, ..ToolInfo::default() }, Exit::Failed),
            ("x", ToolInfo { aborted: true, ..ToolInfo::default() }, Exit::Failed),
            (
                "x",
                ToolInfo { is_error: true, timed_out: true, ..ToolInfo::default() },
                Exit::BusyOrLate,
            ),
            ("Error: busy", ToolInfo { busy: true, ..ToolInfo::default() }, Exit::BusyOrLate),
        ] {
            let result = ToolResult { text: text.to_owned(), info, data: None, closing: None };
            assert_eq!(of_tool(&result), expected, "{result:?}");
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_documentation() {
        let all = [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::Unreachable,
            Exit::BusyOrLate,
            Exit::Interrupted,
        ];
        assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4, 130]);
    }
}
