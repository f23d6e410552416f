//! Exit codes of `quack`, and the errors that determine them. Used by `main` and the subcommands.

use quackd_client::{ClientError, StartError};
use quackd_home::HomeError;
use quackd_protocol::client::{ErrorCode, ToolResult};
use quackd_protocol::plain::without_numbers;
use serde_json::{Value, json};

/// Exit code of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitCode {
    /// The request succeeded.
    Ok,
    /// The request failed for a reason without an own code.
    Failed,
    /// The command line is invalid. Nothing was done.
    Usage,
    /// No daemon is running, or it speaks another protocol.
    Unreachable,
    /// The request was refused as busy, or its deadline passed.
    BusyOrLate,
    /// The model's answer is cut, empty, a refusal, or none of its API.
    NoAnswer,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The code of a program in a session. `quack tool --raw`: also one of [`raw`].
    OfCommand(u8),
    /// `quack daemon` under a service manager: a code from [`quackd_service::exit`].
    OfDaemon(u8),
}

impl ExitCode {
    /// The codes of all subcommands.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::Unreachable,
        Self::BusyOrLate,
        Self::NoAnswer,
        Self::Interrupted,
    ];

    /// Returns the number documented in docs/operations.md.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::BusyOrLate => 4,
            Self::NoAnswer => 5,
            Self::Interrupted => 130,
            Self::OfCommand(code) | Self::OfDaemon(code) => code,
        }
    }

    /// The `code` of an error in `--json`.
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed | Self::OfCommand(_) | Self::OfDaemon(_) => "failed",
            Self::Usage => "usage",
            Self::Unreachable => "no_daemon",
            Self::BusyOrLate => "busy",
            Self::NoAnswer => "no_answer",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(exit: ExitCode) -> Self {
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

/// Error of the command line with its exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    exit: ExitCode,
    text: String,
}

impl CliError {
    /// Creates an error for an invalid command line.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { exit: ExitCode::Usage, text: text.into() }
    }

    /// Creates an error for a subcommand that the user interrupted.
    pub(crate) fn interrupted(text: impl Into<String>) -> Self {
        Self { exit: ExitCode::Interrupted, text: text.into() }
    }

    /// Creates an error for a request that failed.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { exit: ExitCode::Failed, text: text.into() }
    }

    /// Creates an error for an answer that is cut, empty, a refusal, or not of its API.
    pub(crate) fn no_answer(text: impl Into<String>) -> Self {
        Self { exit: ExitCode::NoAnswer, text: text.into() }
    }

    /// Ends a command whose reader has seen the error already. The lines of a script (`has_lines`) end with it.
    pub(crate) fn shown(self, has_lines: bool) -> anyhow::Result<ExitCode> {
        if has_lines { Err(self.into()) } else { Ok(self.exit) }
    }

    /// Creates an error for a daemon that speaks another protocol.
    pub(crate) fn wrong_daemon(text: impl Into<String>) -> Self {
        Self { exit: ExitCode::Unreachable, text: text.into() }
    }

    /// Creates an error for a daemon that exited during the request.
    pub(crate) fn daemon_gone(text: impl Into<String>) -> Self {
        Self { exit: ExitCode::Unreachable, text: text.into() }
    }

    /// Creates an error for a resource that another client uses.
    pub(crate) fn busy(text: impl Into<String>) -> Self {
        Self { exit: ExitCode::BusyOrLate, text: text.into() }
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CliError {}

/// Returns the exit code for `error`.
pub(crate) fn of_error(error: &anyhow::Error) -> ExitCode {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return of_client_error(error);
        }
        if let Some(advised) = cause.downcast_ref::<Advised>() {
            return of_client_error(&advised.error);
        }
        if let Some(error) = cause.downcast_ref::<CliError>() {
            return error.exit;
        }
        if cause.is::<StartError>() || cause.is::<HomeError>() {
            return ExitCode::Unreachable;
        }
    }
    ExitCode::Failed
}

/// Formats `error` with its causes and, if known, the remedy.
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

/// Returns the `--json` document for `error` of a subcommand with this exit code.
pub(crate) fn document(error: &anyhow::Error, exit: ExitCode) -> Value {
    let (message, hint) = match error.downcast_ref::<Advised>() {
        Some(advised) => (advised.error.to_string(), Some(advised.hint.clone())),
        None => (format!("{error:#}"), way_out(error).map(str::to_owned)),
    };
    describe(exit, &message, hint.as_deref())
}

/// Returns the `--json` document for a usage error. clap's text is one sentence, followed by advice.
pub(crate) fn usage_document(error: &clap::Error) -> Value {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim();
    let (message, hint) = match text.split_once("\n\n") {
        Some((message, hint)) => (message, Some(hint.trim())),
        None => (text, None),
    };
    describe(ExitCode::Usage, message, hint)
}

/// Returns the `--json` document for an interrupted subcommand.
pub(crate) fn interrupted_document() -> Value {
    describe(ExitCode::Interrupted, "interrupted", None)
}

fn describe(exit: ExitCode, message: &str, hint: Option<&str>) -> Value {
    json!({"error": {"code": exit.name(), "message": without_numbers(message), "hint": hint}})
}

fn of_client_error(error: &ClientError) -> ExitCode {
    match error {
        ClientError::Refused { code: Some(ErrorCode::Busy | ErrorCode::PiBusy), .. } => {
            ExitCode::BusyOrLate
        }
        ClientError::Refused { .. } | ClientError::Unexpected { .. } => ExitCode::Failed,
        ClientError::TooLong { .. } => ExitCode::Usage,
        ClientError::Timeout { method, .. } if method != "connect" => ExitCode::BusyOrLate,
        _ => ExitCode::Unreachable,
    }
}

/// Returns the exit code of `quack tool` for this result.
pub(crate) fn of_tool(result: &ToolResult) -> ExitCode {
    let info = &result.info;
    // A command may print `Error:` and succeed. Without an exit code, such a text means that the command did not run.
    let says_error = info.exit_code.is_none() && result.text.starts_with("Error:");

    if info.busy || info.timed_out {
        ExitCode::BusyOrLate
    } else if info.is_error || info.worker_died || info.aborted || says_error {
        ExitCode::Failed
    } else {
        ExitCode::Ok
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

/// Returns the exit code of `quack tool --raw` for this result.
pub(crate) fn of_raw(result: &ToolResult) -> ExitCode {
    let info = &result.info;
    if info.timed_out {
        return ExitCode::OfCommand(raw::TIMED_OUT);
    }
    of_program(info.exit_code, info.signal).unwrap_or(ExitCode::OfCommand(raw::FAILED))
}

/// Returns the exit code for a program that ended with a code or by a signal. `None` if neither is known.
pub(crate) fn of_program(exit_code: Option<i32>, signal: Option<i32>) -> Option<ExitCode> {
    let code = match (exit_code, signal) {
        // An exit code has eight bits.
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(raw::FAILED),
        (None, Some(signal)) => {
            u8::try_from(signal).map_or(raw::FAILED, |signal| raw::SIGNAL.saturating_add(signal))
        }
        (None, None) => return None,
    };
    Some(ExitCode::OfCommand(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::client::ToolInfo;
    use std::time::Duration;

    fn timeout(method: &str) -> ClientError {
        ClientError::Timeout { method: method.to_owned(), after: Duration::from_secs(1) }
    }

    fn refused(code: Option<ErrorCode>) -> anyhow::Error {
        ClientError::Refused { text: "no".to_owned(), code }.into()
    }

    #[test]
    fn an_error_exits_by_its_cause_whatever_stands_around_it() {
        for (error, expected) in [
            (anyhow::anyhow!("other"), ExitCode::Failed),
            (CliError::usage("no").into(), ExitCode::Usage),
            (CliError::wrong_daemon("old").into(), ExitCode::Unreachable),
            (CliError::daemon_gone("gone").into(), ExitCode::Unreachable),
            (CliError::busy("later").into(), ExitCode::BusyOrLate),
            (ClientError::NotRunning { path: "/s".into() }.into(), ExitCode::Unreachable),
            (ClientError::Disconnected.into(), ExitCode::Unreachable),
            (ClientError::Protocol("x".to_owned()).into(), ExitCode::Unreachable),
            (timeout("connect").into(), ExitCode::Unreachable),
            (timeout("quack.tool").into(), ExitCode::BusyOrLate),
            (ClientError::TooLong { bytes: 9 }.into(), ExitCode::Usage),
            (refused(None), ExitCode::Failed),
            (refused(Some(ErrorCode::SessionNotFound)), ExitCode::Failed),
            (refused(Some(ErrorCode::Busy)), ExitCode::BusyOrLate),
            (refused(Some(ErrorCode::PiBusy)), ExitCode::BusyOrLate),
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
            ("fine", ToolInfo::default(), ExitCode::Ok),
            ("Error: File not found at 'x'", ToolInfo::default(), ExitCode::Failed),
            ("Error: printed\n[Exit code: 0]", ran, ExitCode::Ok),
            (
                "x",
                ToolInfo { is_error: true, exit_code: Some(7), ..ToolInfo::default() },
                ExitCode::Failed,
            ),
            ("x", ToolInfo { worker_died: true, ..ToolInfo::default() }, ExitCode::Failed),
            ("x", ToolInfo { aborted: true, ..ToolInfo::default() }, ExitCode::Failed),
            (
                "x",
                ToolInfo { is_error: true, timed_out: true, ..ToolInfo::default() },
                ExitCode::BusyOrLate,
            ),
            ("Error: busy", ToolInfo { busy: true, ..ToolInfo::default() }, ExitCode::BusyOrLate),
        ] {
            let result = ToolResult { text: text.to_owned(), info, data: None, closing: None };
            assert_eq!(of_tool(&result), expected, "{result:?}");
        }
    }

    #[test]
    fn a_program_has_its_code_or_that_of_its_signal() {
        let code = |code, signal| of_program(code, signal).map(ExitCode::code);
        assert_eq!((code(Some(0), None), code(Some(7), None)), (Some(0), Some(7)));
        assert_eq!((code(Some(256 + 3), None), code(None, Some(9))), (Some(3), Some(137)));
        assert_eq!((code(Some(2), Some(15)), code(None, None)), (Some(2), None));
    }

    #[test]
    fn the_numbers_are_those_of_the_documentation() {
        assert_eq!(ExitCode::ALL.map(ExitCode::code), [0, 1, 2, 3, 4, 5, 130]);
    }
}
