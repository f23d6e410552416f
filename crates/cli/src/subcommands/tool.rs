//! `quack tool`: runs one tool call and prints its result to stdout. [`call`] runs it, [`mod@print`] prints the
//! command's output.

mod call;
pub(crate) mod print;

use self::call::Ended;
use self::print::Printer;
use crate::args::tool::ToolArgs;
use crate::connect::{patience, start_and_connect};
use crate::display;
use crate::exit::{self, CliError, ExitCode};
use crate::output::CliOutput;
use crate::piped_stdin;
use crate::session_hint;
use crate::session_ref::{self, Missing, Wanted};
use crate::subcommands::approval_prompt::{AskedBy, Prompter, is_possible};
use crate::subcommands::follow::session_view::Interrupts;
use crate::suggest::nearest;
use crate::tool_output::call_id;
use anyhow::Context;
use quackd_client::Client;
use quackd_protocol::CeilingKind;
use quackd_protocol::client::{ToolParams, ToolResult};
use quackd_protocol::denial::quoted;
use quackd_protocol::limits::{MAX_JOB_TIME, MAX_LINE_BYTES, MAX_TOOL_DEADLINE};
use quackd_protocol::output::with_signal;
use quackd_protocol::tools::{self, is_meant_as_json, main_parameter};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::convert::Infallible;
use std::io::{IsTerminal as _, Read};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Default deadline of a call. It is longer than a voice agent's, because users at a terminal run builds and tests.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// Name of the tool whose hints are printed after its text.
const BASH: &str = tools::BASH.name;

/// Tool whose answer is the content of a file.
const READ_FILE: &str = tools::READ_FILE.name;

/// Warning about a file with NUL bytes, which a terminal does not get.
const BINARY: &str = "this is a binary file, which is no text; `quack tool bash --raw 'cat FILE' | xxd` shows its bytes";

/// Runs the subcommand. With `--raw`, its own failures have an exit code that few commands use.
pub(crate) async fn run(args: &ToolArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    match call_tool(args, output).await {
        Err(error) if args.raw => {
            output.failure(&exit::explain(&session_hint::explained(error).await));
            Ok(ExitCode::OfCommand(exit::raw::FAILED))
        }
        ended => ended,
    }
}

async fn call_tool(args: &ToolArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::catch_with_hangup()?;
    let prepared = tokio::select! {
        biased;
        // No call was requested yet.
        _ = interrupts.next() => return Ok(ExitCode::Interrupted),
        prepared = prepare(args, output) => prepared?,
    };

    let (client, params, label) = prepared;
    // Wait for the longest deadline, because the daemon's configuration may set the default.
    let longest = if params.no_deadline.is_some() { MAX_JOB_TIME } else { MAX_TOOL_DEADLINE };
    let patience = patience(args.timeout.unwrap_or(longest));

    let mut printer = Printer::new(args.raw, output);
    // A script with --raw must not be asked.
    let may_ask = !args.no_ask && !args.raw && is_possible(output);
    let asking = if may_ask {
        Prompter::start(params.session_id.clone(), AskedBy::Call, output).await.ok()
    } else {
        None
    };

    let cancel = CancellationToken::new();
    let asking = async {
        if let Some(asking) = asking {
            // After an interrupt, the user is not asked here, and the output goes on.
            cancel.run_until_cancelled(asking.run()).await;
        }
        std::future::pending::<Infallible>().await
    };

    let making =
        call::make(&client, params, patience, &mut printer, &mut interrupts, &cancel, output);
    // The end of the call ends an open question, so that its result can be printed.
    let ended = tokio::select! {
        ended = making => ended?,
        never = asking => match never {},
    };

    match ended {
        Ended::Answered(result) => answered(args, &result, &label, &printer, output),
        Ended::Unread(result) if args.raw => Ok(exit::of_raw(&result)),
        Ended::Unread(result) => Ok(exit::of_tool(&result)),
        Ended::Interrupted(result) => {
            let signal = result.as_ref().and_then(|result| result.info.signal);
            if let Some(signal) = signal.filter(|_| output.is_json()) {
                let text = format!("interrupted; the command was killed by signal {signal}");
                return Err(CliError::interrupted(text).into());
            }
            if let Some(result) = result.filter(|_| !args.raw && !output.is_json()) {
                print_end(&args.name, &result, &printer, output)?;
            }
            Ok(ExitCode::Interrupted)
        }
    }
}

/// Converts the command line into a request and connects.
async fn prepare(
    args: &ToolArgs,
    output: CliOutput,
) -> anyhow::Result<(Client, ToolParams, String)> {
    let mut arguments = match args.argument.as_deref() {
        None => Value::Null,
        Some("-") => interpret(&args.name, &read_stdin().await?)?,
        Some(word) => interpret(&args.name, word)?,
    };

    if args.name == BASH && is_blank(&arguments) {
        return Err(
            CliError::usage("give a command, such as `quack tool bash 'git status'`").into()
        );
    }

    if args.detach {
        arguments = detached(&args.name, arguments, args.timeout)?;
        if !args.no_stdin && piped_stdin::is_input(&std::io::stdin()) {
            output.warning(
                "a background job gets nothing from stdin; -n says so without this warning",
            );
        }
    }

    let is_command = args.name == BASH && arguments.get("background") != Some(&Value::Bool(true));
    if args.raw && !is_command {
        return Err(CliError::usage(
            "--raw is for commands of bash that do not run in the background",
        )
        .into());
    }

    let is_script = args.argument.as_deref() == Some("-");
    let has_stdin =
        is_command && !is_script && !args.no_stdin && piped_stdin::is_input(&std::io::stdin());
    // Checked before a daemon is started.
    let reference = Wanted::of(&args.which)?;
    // A deadline in bash's own arguments takes precedence.
    let has_own = arguments.get("timeout_ms").is_some() && !args.detach;
    let ms = |time: Duration| u64::try_from(time.as_millis());

    let daemon = start_and_connect(output).await?;
    let session = reference.one(&daemon.client, Missing::Create).await?;
    if !args.raw {
        session_ref::tell(&session, output);
    }

    let cwd = reference.directory_in(&session.workspace_path);
    let label = session.label;
    let params = ToolParams {
        tool: args.name.clone(),
        arguments,
        session_id: Some(session.session_id.0),
        cwd,
        safe_mode: args.safe.then_some(true),
        timeout_ms: args.timeout.filter(|_| !args.detach).map(ms).transpose()?,
        default_timeout_ms: (!has_own).then(|| ms(DEFAULT_TIMEOUT)).transpose()?,
        no_deadline: (is_command && is_watched(output)).then_some(true),
        call_id: Some(call_id()),
        stream: (is_command && !output.is_json()).then_some(true),
        stdin: has_stdin.then_some(true),
        ..ToolParams::default()
    };
    Ok((daemon.client, params, label))
}

/// Whether arguments have no command.
fn is_blank(arguments: &Value) -> bool {
    match arguments {
        Value::Null => true,
        Value::String(command) => command.trim().is_empty(),
        _ => false,
    }
}

/// Whether a user watches the call at a terminal, and can end it.
fn is_watched(output: CliOutput) -> bool {
    std::io::stderr().is_terminal() && !output.is_json()
}

/// Converts the arguments into those of a background job. `--timeout` becomes the job's time limit.
fn detached(tool: &str, arguments: Value, timeout: Option<Duration>) -> anyhow::Result<Value> {
    let mut object = match arguments {
        Value::Object(object) => object,
        Value::String(command) => Map::from_iter([("command".to_owned(), command.into())]),
        _ => Map::new(),
    };

    if tool != BASH {
        return Err(CliError::usage("--detach is for commands of bash").into());
    }

    object.insert("background".to_owned(), Value::Bool(true));
    if let Some(timeout) = timeout {
        object.insert("timeout_ms".to_owned(), u64::try_from(timeout.as_millis())?.into());
    }
    Ok(object.into())
}

/// Prints a result and hints about it.
fn answered(
    args: &ToolArgs,
    result: &ToolResult,
    label: &str,
    printer: &Printer,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    if args.raw {
        return Ok(raw_end(result, output));
    }
    if output.is_json() {
        output.document(result)?;
    } else {
        print_end(&args.name, result, printer, output)?;
    }

    let exit = exit::of_tool(result);
    if result.info.timed_out {
        output.warning(&out_of_time(&args.name));
    }
    if let (BASH, Some(hint)) = (args.name.as_str(), &result.info.hint) {
        output.warning(hint);
    }
    if let Some(job) = job_id(result).filter(|_| exit == ExitCode::Ok) {
        output.note(&job_hint(job, label));
    }
    if exit == ExitCode::Failed
        && result.info.unknown_tool
        && let Some(hint) = unknown(&args.name)
    {
        output.warning(&hint);
    }
    Ok(exit)
}

/// Returns the text of a result. File tools return codes such as `EISDIR` for programs. For users, a hint that says the
/// same in plain words replaces the text.
fn in_plain_words<'a>(tool: &str, result: &'a ToolResult) -> Cow<'a, str> {
    match &result.info.hint {
        Some(hint) if result.info.hint_adds => Cow::Owned(format!("{}\n{hint}", result.text)),
        Some(hint) if tool != BASH => {
            let more = result.text.split_once('\n').map(|(_, more)| format!("\n{more}"));
            Cow::Owned(format!("Error: {hint}{}", more.unwrap_or_default()))
        }
        _ => Cow::Borrowed(&result.text),
    }
}

/// Prints the part of a result that was not streamed.
fn print_end(
    tool: &str,
    result: &ToolResult,
    printer: &Printer,
    output: CliOutput,
) -> anyhow::Result<()> {
    match &result.closing {
        // The other lines name tools, and the note below names subcommands.
        None if job_id(result).is_some() => {
            output.answer_lines(result.text.lines().next().unwrap_or_default())?;
        }
        Some(closing) => output.answer_lines(&with_signal(closing, result.info.signal))?,
        // The failure is not the command's, so its text begins a new line.
        None if printer.is_inside_line() => output.answer_lines(&format!("\n{}", result.text))?,
        // A file may end without a newline.
        None if tool == READ_FILE && !result.info.is_error => {
            let is_binary = result.text.contains('\0');
            if !(is_binary && output.audience().is_terminal) {
                output.answer(&result.text)?;
            }
            if is_binary {
                output.warning(BINARY);
            }
            if let Some(hint) = &result.info.hint {
                output.warning(hint);
            }
        }
        None => output.answer_lines(&in_plain_words(tool, result))?,
    }
    Ok(())
}

/// Reports on stderr if the command did not end by itself.
fn raw_end(result: &ToolResult, output: CliOutput) -> ExitCode {
    for remark in &result.info.audit {
        output.warning(&display::plain(remark));
    }

    if result.info.timed_out {
        output.failure(&out_of_time(BASH));
    } else if let Some(ceiling) = result.info.ceiling {
        output.failure(match ceiling {
            CeilingKind::SessionMemory => {
                "the memory of the session reached its limit, limits.session_memory_mb"
            }
            CeilingKind::Memory => "memory ran out; the kernel probably killed the command",
            CeilingKind::Processes => "the command had more processes than limits.processes",
        });
    } else if result.closing.is_none() {
        let text = &result.text;
        output.failure(text.strip_prefix("Error: ").unwrap_or(text));
    }
    exit::of_raw(result)
}

fn job_id(result: &ToolResult) -> Option<&str> {
    let data = result.data.as_ref()?;
    // The result of a started job has no other field.
    data.get("jobId").filter(|_| data.get("running").is_none())?.as_str()
}

/// Returns the commands that show and kill a job.
fn job_hint(job: &str, session: &str) -> String {
    let (job, session) = (display::name(job), quoted(&display::name(session)));
    format!(
        "`quack jobs -f {job} --session {session}` shows its output, `quack jobs kill {job} --session {session}` ends it, \
         `quack forward {session} PORT` makes a port of it reachable here"
    )
}

/// Returns advice for a call that reached its deadline.
fn out_of_time(tool: &str) -> String {
    let job = match tool {
        BASH => {
            "; or run it in the background: `quack tool bash --detach '…'`, then `quack jobs -f JOB`"
        }
        _ => "",
    };
    format!("the deadline has passed; `--timeout 5m` gives more time, 10 minutes at most{job}")
}

/// Returns a hint for a failed tool that this program does not know. A newer daemon may have more tools.
fn unknown(name: &str) -> Option<String> {
    let known = tools::all().map(|tool| tool.name);
    if tools::find(name).is_some() {
        return None;
    }
    let near = nearest(name, known.clone());
    let meant = match near.first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
    };
    Some(format!("no tool is called `{}`; {meant}", display::name(name)))
}

/// Parses the argument. A JSON object or string is passed unchanged. Other text is the tool's main argument.
///
/// # Errors
/// A usage error for invalid JSON, which must not be run as a command.
fn interpret(tool: &str, text: &str) -> anyhow::Result<Value> {
    let error = match serde_json::from_str(text) {
        Ok(value @ (Value::Object(_) | Value::String(_))) => return Ok(value),
        Ok(_) => None,
        Err(error) => Some(error),
    };

    if is_meant_as_json(tool, text) {
        let reason = match error {
            Some(error) => format!("the arguments are not valid JSON: {error}"),
            None => "the arguments must be a JSON object".to_owned(),
        };
        let main = main_parameter(tool).unwrap_or("path");
        return Err(CliError::usage(format!(
            "{reason}; give a word, or an object such as '{{\"{main}\":\"…\"}}'"
        ))
        .into());
    }
    // A number is a valid search pattern. The final newline of a pipe is removed, because in a pattern it would be an
    // alternative that matches every line.
    Ok(Value::from(text.strip_suffix('\n').unwrap_or(text)))
}

async fn read_stdin() -> anyhow::Result<String> {
    let bytes = tokio::task::spawn_blocking(|| read_at_most(std::io::stdin().lock())).await??;
    String::from_utf8(bytes).map_err(|_e| CliError::usage("stdin is not valid UTF-8").into())
}

fn read_at_most(from: impl Read) -> anyhow::Result<Vec<u8>> {
    let limit = u64::try_from(MAX_LINE_BYTES)?;
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes).context("cannot read stdin")?;
    if MAX_LINE_BYTES < bytes.len() {
        return Err(CliError::usage(format!("stdin is longer than {MAX_LINE_BYTES} bytes")).into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mistyped_tool_is_told_from_one_that_failed() {
        assert_eq!(unknown("bash"), None);
        assert_eq!(unknown("bsh").unwrap(), "no tool is called `bsh`; did you mean `bash`?");
        let all = unknown("xyzzy").unwrap();
        assert!(all.contains("; there are ") && all.contains(", bash, "), "{all}");
    }

    #[test]
    fn json_objects_and_strings_are_passed_and_everything_else_is_a_word() {
        for (text, passed) in [
            (r#"{"command":"ls"}"#, json!({"command": "ls"})),
            (" {\"a\":1}\n", json!({"a": 1})),
            (r#""a b""#, json!("a b")),
            ("ls -la", json!("ls -la")),
            ("42", json!("42")),
            ("null", json!("null")),
            ("[1]", json!("[1]")),
            ("{ echo hi; }", json!("{ echo hi; }")),
            ("pattern\n", json!("pattern")),
            ("two\nlines\n\n", json!("two\nlines\n")),
            ("", json!("")),
        ] {
            assert_eq!(interpret("bash", text).unwrap(), passed, "{text:?}");
        }
    }

    #[test]
    fn broken_json_is_a_usage_error() {
        for text in [r#"{"command":"ls""#, r#"{"command":"ls"} x"#, r#"["ls"]"#, "{'command':'ls'}"]
        {
            let error = interpret("bash", text).unwrap_err();
            assert_eq!(exit::of_error(&error), ExitCode::Usage, "{error:#}");
            assert!(error.to_string().contains("JSON"), "{error:#}");
        }
    }

    #[test]
    fn stdin_without_end_is_refused_at_the_limit() {
        assert_eq!(read_at_most(&b"abc"[..]).unwrap(), b"abc");
        let exact = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(read_at_most(&exact[..]).unwrap().len(), MAX_LINE_BYTES);
        let error = read_at_most(std::io::repeat(b'x')).unwrap_err();
        assert_eq!(exit::of_error(&error), ExitCode::Usage, "{error:#}");
    }
}
