//! `quack say`: sends a prompt to a session's Pi and shows its turn.

use super::follow::session_view::{InputMode, Interrupts, SessionView, is_person};
use super::follow::{self, follow_connection::FollowConnection};
use crate::args::say::SayArgs;
use crate::connect::{start_and_connect, warn_if_config_changed};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::piped_stdin::is_input;
use crate::session_ref::{self, Missing, Wanted};
use crate::shell_keys;
use quackd_protocol::limits::MAX_LINE_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default timeout of a turn, the same as upstream's.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Time in which data must arrive on stdin if the prompt has words too.
const STDIN_LIMIT: Duration = Duration::from_secs(3);

/// Runs the subcommand.
pub(crate) async fn run(args: SayArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::catch()?;
    let deadline = Instant::now() + args.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let look = follow::look(args.look);
    let begun = tokio::select! {
        biased;
        // No prompt was sent yet.
        _ = interrupts.next() => return Ok(ExitCode::Interrupted),
        begun = begin(args, output) => begun,
    };
    let (message, watch) = begun?;
    let mut live = SessionView::new(watch, look, InputMode::Answers, output);
    live.say_once(message, deadline);
    live.run(&mut interrupts).await
}

async fn begin(args: SayArgs, output: CliOutput) -> anyhow::Result<(String, FollowConnection)> {
    let message = message(&args.words, output).await?;
    let wanted = Wanted::of(&args.which)?;
    let daemon = start_and_connect(output).await?;
    warn_if_config_changed(&daemon.daemon, output);
    let client = Arc::new(daemon.client);
    shell_keys::pass_on(&client, output).await;
    let found = wanted.one(&client, Missing::Create).await?;
    session_ref::tell(&found, output);
    let directory = wanted.directory_in(&found.workspace_path);
    let mut watch =
        FollowConnection::begin(client, found.session_id.0, (None, is_person(output))).await?;
    watch.directory = directory;
    Ok((message, watch))
}

/// Returns the prompt: the operands, and stdin if it is a pipe or a file.
async fn message(words: &[String], output: CliOutput) -> anyhow::Result<String> {
    let is_dash = matches!(words, [word] if word == "-");
    let typed = if is_dash { String::new() } else { words.join(" ") };
    if typed.is_empty() && std::io::stdin().is_terminal() {
        return Err(CliError::usage("say what? see --help").into());
    }
    let has_words = !typed.trim().is_empty();
    let piped = match has_words {
        false => tokio::task::spawn_blocking(read_blocking).await??,
        true if is_input(&std::io::stdin()) && has_data(output).await? => {
            tokio::task::spawn_blocking(read_blocking).await??
        }
        true => String::new(),
    };
    match (has_words, piped.trim().is_empty()) {
        (false, true) => Err(CliError::usage("the message is empty").into()),
        (false, false) => Ok(piped),
        (true, true) => Ok(typed),
        (true, false) => Ok(format!("{typed}\n\n{piped}")),
    }
}

/// Waits until stdin has data or its end. A program may have left a pipe open that nobody writes to: after
/// [`STDIN_LIMIT`] without data the prompt is sent without it.
async fn has_data(output: CliOutput) -> anyhow::Result<bool> {
    let polled = tokio::task::spawn_blocking(|| {
        let stdin = std::io::stdin();
        let limit = Timespec::try_from(STDIN_LIMIT).ok();
        poll(&mut [PollFd::new(&stdin, PollFlags::IN)], limit.as_ref())
    });
    // A poll that fails leaves the decision to the read.
    let has_data = polled.await? != Ok(0);
    if !has_data {
        output.warning("nothing came from stdin within 3 s; the prompt is sent without it");
    }
    Ok(has_data)
}

fn read_blocking() -> anyhow::Result<String> {
    let most = u64::try_from(MAX_LINE_BYTES)?;
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    if MAX_LINE_BYTES <= bytes.len() {
        return Err(CliError::usage(format!("stdin has {MAX_LINE_BYTES} bytes or more")).into());
    }
    let text = String::from_utf8(bytes).map_err(|_e| CliError::usage("stdin is not UTF-8"))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}
