//! `quack say`: says something to a session's Pi, and shows what it does until its turn is over.

use super::follow::live::{Interrupts, Live, Typing};
use super::follow::{self, watch::Watch};
use crate::args::say::SayArgs;
use crate::connect::start_and_connect;
use crate::directory;
use crate::display;
use crate::exit::{Exit, Fault};
use crate::output::Output;
use quackd_client::{Client, ClientError};
use quackd_protocol::limits::MAX_LINE_BYTES;
use std::io::{IsTerminal, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for the end of a turn, if nothing else is said; upstream's.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// What the daemon says if no session is meant.
const NO_ACTIVE: &str = "No active session";

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
    let which = args.which;
    let named = match &which.dir {
        Some(dir) => Some(directory::workspace(Some(dir), args.force)?),
        None => None,
    };
    let client = Arc::new(start_and_connect(output).await?.client);
    let session = match (which.session, named) {
        (Some(session), _) => Some(session),
        (None, Some(workspace)) => Some(follow::session_of(&client, Some(workspace), false).await?),
        (None, None) => None,
    };
    let is_named = session.is_some();
    let watch = match Watch::begin(Arc::clone(&client), session, None).await {
        Err(ClientError::Refused(text)) if !is_named && text.contains(NO_ACTIVE) => {
            attached(client, args.force).await?
        }
        watch => watch?,
    };
    tell_where(&watch, is_named, output);
    Ok((message, watch))
}

/// Follows the session of the current directory, which becomes the active one: there is none.
async fn attached(client: Arc<Client>, force: bool) -> anyhow::Result<Watch> {
    let workspace = directory::workspace(None, force)?;
    let session = follow::session_of(&client, Some(workspace), true).await?;
    Ok(Watch::begin(client, Some(session), None).await?)
}

/// Which session is spoken to, if the person has not said it: it may not be the one of this directory.
fn tell_where(watch: &Watch, is_named: bool, output: Output) {
    if is_named {
        return;
    }
    let followed = watch.followed();
    let home_dir = std::env::var("HOME").ok();
    let place = format!(
        "{}  {}",
        display::name(&followed.session_name),
        display::path(&followed.workspace_path, home_dir.as_deref())
    );
    match directory::workspace(None, true) {
        Ok(here) if here == followed.workspace_path => output.note(&place),
        _ => output.warning(&format!(
            "speaking to the active session, {place}; `-C .` speaks to the one of this directory"
        )),
    }
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
