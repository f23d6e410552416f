//! `quack say`: sends a prompt to a session's Pi and shows its turn.

use super::follow::session_view::{InputMode, Interrupts, SessionView, is_person};
use super::follow::{self, follow_connection::FollowConnection};
use crate::args::say::SayArgs;
use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::session_ref::{self, Missing, Wanted};
use quackd_client::Client;
use quackd_protocol::client::{ActivateData, FoundInfo, SessionParams};
use quackd_protocol::limits::MAX_LINE_BYTES;
use std::io::{IsTerminal, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default timeout of a turn, the same as upstream's.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the subcommand.
pub(crate) async fn run(args: SayArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::catch()?;
    let deadline = Instant::now() + args.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let look = follow::look(args.look);
    let begun = tokio::select! {
        biased;
        // No prompt was sent yet.
        () = interrupts.next() => return Ok(ExitCode::Interrupted),
        begun = begin(args, output) => begun,
    };
    let (message, watch) = begun?;
    let mut live = SessionView::new(watch, look, InputMode::Answers, output);
    live.say_once(message, deadline);
    live.run(&mut interrupts).await
}

async fn begin(args: SayArgs, output: CliOutput) -> anyhow::Result<(String, FollowConnection)> {
    let message = message(&args.words).await?;
    let wanted = Wanted::of(&args.which)?;
    let client = Arc::new(start_and_connect(output).await?.client);
    let found = match wanted.find(&client, Missing::UseActive).await? {
        Some(found) => found,
        None => attached(&wanted, &client).await?,
    };
    session_ref::tell(&found, output);
    let watch =
        FollowConnection::begin(client, found.session_id.0, (None, is_person(output))).await?;
    Ok((message, watch))
}

/// Creates the session of the directory. Activates it unless the user named the directory, because there is no active
/// session.
async fn attached(wanted: &Wanted, client: &Client) -> anyhow::Result<FoundInfo> {
    let found = wanted.one(client, Missing::Create).await?;
    if !wanted.is_named() {
        let params = SessionParams { session_id: Some(found.session_id.0.clone()) };
        let _active: ActivateData =
            client.request("activate_session", params, REPLY_TIMEOUT).await?;
    }
    Ok(found)
}

/// Returns the prompt: the operands, or stdin.
async fn message(words: &[String]) -> anyhow::Result<String> {
    let reads = match words {
        [] if std::io::stdin().is_terminal() => {
            return Err(CliError::usage("say what? see --help").into());
        }
        [] => true,
        [word] => word == "-",
        _ => false,
    };
    let text = match reads {
        false => words.join(" "),
        true => tokio::task::spawn_blocking(read_blocking).await??,
    };
    if text.trim().is_empty() {
        return Err(CliError::usage("the message is empty").into());
    }
    Ok(text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn words_are_a_message_and_nothing_is_none() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(message(&words(&["fix", "the  bug"])).await.unwrap(), "fix the  bug");
        for empty in [&[""][..], &[" ", "\n"]] {
            let error = message(&words(empty)).await.unwrap_err();
            assert_eq!(crate::exit::of_error(&error), ExitCode::Usage, "{empty:?}");
        }
    }
}
