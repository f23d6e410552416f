//! Loads and unloads the agent of launchd. `launchctl bootout` returns before the agent is gone, and `bootstrap` fails
//! until then and some seconds longer, so both are awaited here. Not tested on macOS.

use super::context::ServiceContext;
use crate::run_program::{ask, must};
use anyhow::Context;
use quackd_service::commands::Step;
use quackd_service::launchd::AgentState;
use quackd_service::place::LABEL;
use std::time::{Duration, Instant};

/// Timeout for the end of an unloaded agent. launchd kills it after 20 s.
const UNLOAD_LIMIT: Duration = Duration::from_secs(40);

/// Timeout for `bootstrap` to succeed. launchd refuses a label for about 5 s after its agent is gone, and on a busy machine
/// each attempt takes seconds.
const LOAD_LIMIT: Duration = Duration::from_secs(20);

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the state of the agent. `None` if it is not loaded.
pub(super) async fn state() -> anyhow::Result<Option<AgentState>> {
    let target = format!("gui/{}/{LABEL}", rustix::process::getuid().as_raw());
    let answer = ask(&["launchctl", "print", &target]).await?;
    Ok(answer.succeeded.then(|| AgentState::parse(&answer.stdout)))
}

/// Unloads the agent and waits until it is gone. Does nothing if it is not loaded.
pub(super) async fn unload(here: &ServiceContext) -> anyhow::Result<()> {
    if state().await?.is_none() {
        return Ok(());
    }

    let mut complaint = String::new();
    for words in here.commands(Step::Unload) {
        // The agent may have gone in between, and some versions report that the end is still in progress.
        let answer = ask(&words).await?;
        if !answer.succeeded {
            complaint = format!("`{}`: {}; ", words.join(" "), answer.complaint());
        }
    }

    let until = Instant::now() + UNLOAD_LIMIT;
    while state().await?.is_some() {
        if until <= Instant::now() {
            anyhow::bail!(
                "{complaint}launchd still has the agent after {} s",
                UNLOAD_LIMIT.as_secs()
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Loads the agent with its current property list, and starts it.
pub(super) async fn load(here: &ServiceContext) -> anyhow::Result<()> {
    // launchd keeps the list with which an agent was loaded.
    unload(here).await?;

    let commands = here.commands(Step::Load);
    let [enable, bootstrap, kickstart] = commands.as_slice() else {
        anyhow::bail!("launchd has other commands");
    };
    must(enable).await?;

    let until = Instant::now() + LOAD_LIMIT;
    while let Err(error) = must(bootstrap).await {
        // A failed answer may come after a success.
        if state().await?.is_some() {
            break;
        }
        if until <= Instant::now() {
            return Err(error)
                .context("launchd does not load the agent; `quack daemon` needs no service");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }

    // Fails if the agent runs already, as it should.
    drop(ask(kickstart).await?);
    Ok(())
}
