//! `quack say`: says something to a session's Pi, and shows what it does until its turn is over.

use super::follow::live::{Interrupts, Live, Typing};
use super::follow::{self, watch::Watch};
use crate::args::say::SayArgs;
use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::exit::{Exit, Fault};
use crate::output::Output;
use crate::which::{self, Missing, Wanted};
use quackd_client::Client;
use quackd_protocol::client::{ActivateData, FoundInfo, SessionParams};
use quackd_protocol::limits::MAX_LINE_BYTES;
use std::io::{IsTerminal, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for the end of a turn, if nothing else is said; upstream's.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the verb.
pub(crate) async fn run(args: SayArgs, output: Output) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::catch()?;
    let deadline = Instant::now() + args.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let look = follow::look(args.look);
    let begun = tokio::select! {
        biased;
        // Nothing was said yet.
        () = interrupts.next() => return Ok(Exit::Interrupted),
        begun = begin(args, output) => begun,
    };
    let (message, watch) = begun?;
    let mut live = Live::new(watch, look, Typing::Answers, output);
    live.say_once(message, deadline);
    live.run(&mut interrupts).await
}

async fn begin(args: SayArgs, output: Output) -> anyhow::Result<(String, Watch)> {
    let message = message(&args.words).await?;
    let wanted = Wanted::of(&args.which)?;
    let client = Arc::new(start_and_connect(output).await?.client);
    let found = match wanted.find(&client, Missing::UseActive).await? {
        Some(found) => found,
        None => attached(&wanted, &client).await?,
    };
    which::tell(&found, output);
    let watch = Watch::begin(client, found.session_id.0, None).await?;
    Ok((message, watch))
}

/// Creates the session of the directory, which becomes the active one unless the directory was named: there is none.
async fn attached(wanted: &Wanted, client: &Client) -> anyhow::Result<FoundInfo> {
    let found = wanted.one(client, Missing::Create).await?;
    if !wanted.is_named() {
        let params = SessionParams { session_id: Some(found.session_id.0.clone()) };
        let _active: ActivateData =
            client.request("activate_session", params, REPLY_TIMEOUT).await?;
    }
    Ok(found)
}

/// What is to be said: the words, or what stdin has.
async fn message(words: &[String]) -> anyhow::Result<String> {
    let reads = match words {
        [] if std::io::stdin().is_terminal() => {
            return Err(Fault::usage("say what? see --help").into());
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
        return Err(Fault::usage("the message is empty").into());
    }
    Ok(text)
}

fn read_blocking() -> anyhow::Result<String> {
    let most = u64::try_from(MAX_LINE_BYTES)?;
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    if MAX_LINE_BYTES <= bytes.len() {
        return Err(Fault::usage(format!("stdin has {MAX_LINE_BYTES} bytes or more")).into());
    }
    let text = String::from_utf8(bytes).map_err(|_e| Fault::usage("stdin is not UTF-8"))?;
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
            assert_eq!(crate::exit::of_error(&error), Exit::Usage, "{empty:?}");
        }
    }
}
