//! `quack jobs`: lists, follows and ends the background jobs of a session, with the job tools.

use crate::args::SessionArgs;
use crate::args::jobs::{JobsAction, JobsArgs};
use crate::connect::patience;
use crate::display::plain;
use crate::exit::{self, CliError, ExitCode};
use crate::interrupts::Interrupts;
use crate::output::{CliOutput, StdoutState};
use crate::session_ref;
use crate::subcommands::log::records::{CallFilter, CallReader, SessionFilter};
use crate::subcommands::log::row::{arguments, main_argument};
use crate::subcommands::tool::print::Printer;
use jiff::{SignedDuration, Timestamp};
use quackd_client::Client;
use quackd_home::Home;
use quackd_protocol::client::{ToolParams, ToolResult};
use quackd_protocol::journal::{CallEnd, CallRecord, JOB_END};
use quackd_protocol::limits::MAX_TOOL_DEADLINE;
use quackd_protocol::output::{OutputStream, with_signal};
use quackd_protocol::tools::{JOBS, JobKillArguments, JobOutputArguments};
use serde_json::{Map, Value, json};

/// Time for which one request waits for more output, in milliseconds.
const WAIT_MS: u64 = 20_000;

/// Time for which lost jobs are listed, and how many.
const LOST_SHOWN: SignedDuration = SignedDuration::from_hours(24);
const MAX_LOST: usize = 8;

/// Newest calls of the session that are searched for them.
const MAX_CALLS: usize = 1000;

/// The session, and the way to it.
struct Jobs {
    client: Client,
    session: String,
}

/// Runs the subcommand. Following ends with the job or with Ctrl-C.
pub(crate) async fn run(args: JobsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let choice = args.which.into_which();

    match (args.action, args.follow) {
        (Some(JobsAction::Kill { job, which: choice }), _) => {
            let jobs = Jobs::of(&choice, output).await?;
            print(&jobs.call(JobKillArguments::builder().job(job)).await?, output)
        }
        (None, Some(job)) => {
            let mut interrupts = Interrupts::catch()?;
            let following = async { Jobs::of(&choice, output).await?.follow(&job, output).await };
            tokio::select! {
                biased;
                // The job goes on.
                _ = interrupts.next() => Ok(ExitCode::Interrupted),
                ended = following => ended,
            }
        }
        (None, None) => {
            let jobs = Jobs::of(&choice, output).await?;
            let list = ToolParams {
                tool: JOBS.name.to_owned(),
                arguments: Map::new().into(),
                ..ToolParams::default()
            };
            let mut listed = jobs.call(list).await?;
            // The worker knows only its own jobs.
            let lost = jobs.lost();
            if let Some(data) = listed.data.as_mut().and_then(Value::as_object_mut) {
                data.insert("lost".to_owned(), lost.iter().map(lost_facts).collect());
            }

            let ended = print(&listed, output)?;
            if !output.is_json() {
                output.text(&lost.iter().map(lost_line).collect::<String>())?;
            }
            Ok(ended)
        }
    }
}

/// A job that has ended.
pub(super) struct EndedJob {
    /// The last output of the job.
    pub(super) text: String,
    pub(super) code: ExitCode,
    /// Changed files that other programs run or obey, a line for each. Only the first answer after the end has them.
    pub(super) audit: Vec<String>,
}

/// Returns the end of a job. `None` if the job runs, or its session has no such job.
///
/// # Errors
/// Those of the request.
pub(super) async fn ended(
    client: &Client,
    session: &str,
    job: &str,
) -> anyhow::Result<Option<EndedJob>> {
    let params: ToolParams = JobOutputArguments::builder().job(job).into();
    let params = ToolParams { session_id: Some(session.to_owned()), ..params };
    let result = client.call_within(params, patience(MAX_TOOL_DEADLINE)).await?;

    let data = result.data.as_ref().filter(|_| !result.info.is_error);
    let is_ended = |data: &&Value| data.get("running") == Some(&Value::Bool(false));
    let Some(data) = data.filter(is_ended) else { return Ok(None) };

    let code = data.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    let text = result.text.strip_suffix(&format!("\n[Exit code: {code}]"));
    let (text, code) = (text.unwrap_or(&result.text).to_owned(), exit_of(data));
    Ok(Some(EndedJob { text, code, audit: result.info.audit }))
}

/// Prints a result. With `--json` only its data.
fn print(result: &ToolResult, output: CliOutput) -> anyhow::Result<ExitCode> {
    if result.info.is_error {
        let text = result.text.strip_prefix("Error: ").unwrap_or(&result.text);
        return Err(CliError::failed(text).into());
    }

    match &result.data {
        Some(data) if output.is_json() => output.document(data)?,
        _ => {
            let signal = result.data.as_ref().and_then(signal_of);
            output.answer_lines(&with_signal(&result.text, signal))?;
        }
    }
    Ok(ExitCode::Ok)
}

impl Jobs {
    async fn of(choice: &SessionArgs, output: CliOutput) -> anyhow::Result<Self> {
        let (client, session) = session_ref::existing(choice, output).await?;
        Ok(Self { client, session: session.session_id.0 })
    }

    async fn call(&self, call: impl Into<ToolParams>) -> anyhow::Result<ToolResult> {
        let params = ToolParams { session_id: Some(self.session.clone()), ..call.into() };
        Ok(self.client.call_within(params, patience(MAX_TOOL_DEADLINE)).await?)
    }

    /// Returns the ends of the last day's jobs that ended with the daemon or with their worker, newest first. The worker of
    /// now does not know them.
    fn lost(&self) -> Vec<CallRecord> {
        let Ok(home) = Home::from_process_env_blocking() else { return Vec::new() };
        let since = Timestamp::now().checked_sub(LOST_SHOWN).ok();
        let session = Some(SessionFilter::Id(self.session.clone()));
        let filter = CallFilter { session, since, ..CallFilter::default() };

        let read = CallReader::new(home.journal_dir(), filter).last_blocking(MAX_CALLS);
        let calls = read.map(|(calls, _)| calls).unwrap_or_default();

        let is_lost = |call: &CallRecord| {
            call.tool == JOB_END && matches!(call.outcome, CallEnd::DaemonDied | CallEnd::Died)
        };
        calls.into_iter().rev().filter(is_lost).take(MAX_LOST).collect()
    }

    /// Prints the output of a job until it ends. Returns its exit code.
    async fn follow(&self, job: &str, output: CliOutput) -> anyhow::Result<ExitCode> {
        let mut cursor = 0;
        let mut printer = Printer::new(false, output);
        loop {
            let read = JobOutputArguments::builder().job(job).cursor(cursor).wait_ms(WAIT_MS);
            let result = self.call(read).await?;
            let Some(data) = result.data.as_ref().filter(|_| !result.info.is_error) else {
                return print(&result, output);
            };

            let number = |name: &str| data.get(name).and_then(Value::as_u64);
            let is_running = data.get("running") == Some(&Value::Bool(true));
            let next = number("cursor").unwrap_or(cursor);
            // Output may be left after the end of the job.
            let is_at_end = number("totalBytes").is_none_or(|total| total <= next);

            if output.is_json() {
                output.first_line(&result)?;
            } else {
                let text = with_signal(bytes_of(&result.text, next, is_running), signal_of(data));
                let bytes = text.into_owned().into_bytes();
                if printer.piece(OutputStream::Stdout, bytes).await? == StdoutState::Gone {
                    return Ok(ExitCode::Ok);
                }
            }

            cursor = next;
            if !is_running && is_at_end {
                printer.finish().await?;
                output.text("\n")?;
                return Ok(exit_of(data));
            }
        }
    }
}

fn lost_line(job: &CallRecord) -> String {
    format!("{}  {}\n", plain(&main_argument(job)), job.outcome.name())
}

/// Returns the facts about a lost job for `--json`.
fn lost_facts(job: &CallRecord) -> Value {
    let arguments = arguments(job);
    let word = |name: &str| arguments.get(name).cloned().unwrap_or_default();
    json!({
        "jobId": word("job"),
        "command": word("command"),
        "running": false,
        "outcome": job.outcome,
        "atMs": job.at_ms,
    })
}

/// Returns a text of `job_output` without the lines about the cursor and the state, if the job runs or has more output.
fn bytes_of(text: &str, cursor: u64, is_running: bool) -> &str {
    let mark = format!("\n[Cursor: {cursor}");
    match text.rfind(&mark) {
        Some(at)
            if is_running || !text.get(at + mark.len()..).unwrap_or_default().starts_with(']') =>
        {
            text.get(..at).unwrap_or(text)
        }
        _ => text,
    }
}

fn signal_of(data: &Value) -> Option<i32> {
    data.get("signal").and_then(Value::as_i64).and_then(|signal| i32::try_from(signal).ok())
}

/// Returns the exit code of an ended job, as a shell has it.
fn exit_of(data: &Value) -> ExitCode {
    let number = |name: &str| data.get(name).and_then(Value::as_u64);
    let code = number("exitCode").or_else(|| number("signal").map(|signal| 128 + signal));
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(0) => ExitCode::Ok,
        Some(code) => ExitCode::OfCommand(code),
        None => ExitCode::OfCommand(exit::raw::FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_about_the_cursor_are_no_output() {
        assert_eq!(bytes_of("up\n\n[Cursor: 3]\n[Job running]", 3, true), "up\n");
        assert_eq!(bytes_of("up\n\n[Cursor: 3 of 9 bytes]\n[Exit code: 0]", 3, false), "up\n");
        assert_eq!(
            bytes_of("x\n[Cursor: 3]\n\n[Exit code: 0]", 9, false),
            "x\n[Cursor: 3]\n\n[Exit code: 0]"
        );
        assert_eq!(bytes_of("", 0, true), "");
    }

    #[test]
    fn an_ended_job_has_the_exit_code_of_a_shell() {
        assert_eq!(exit_of(&json!({"exitCode": 0})), ExitCode::Ok);
        assert_eq!(exit_of(&json!({"exitCode": 3})), ExitCode::OfCommand(3));
        assert_eq!(exit_of(&json!({"signal": 9})), ExitCode::OfCommand(137));
        assert_eq!(exit_of(&json!({})), ExitCode::OfCommand(exit::raw::FAILED));
    }
}
