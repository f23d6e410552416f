//! `quack daemon`: becomes the supervisor. Started by a person, a service manager or another verb.

use crate::args::DaemonArgs;
use crate::exit::Exit;
use crate::output::Output;
use quackd_supervisor::{DaemonOptions, Ended};
use serde_json::json;

/// Runs until the daemon ends. Called on the main thread, which it keeps.
pub(crate) fn run(args: &DaemonArgs, output: Output) -> anyhow::Result<Exit> {
    let options = DaemonOptions { background: args.background, verbose: args.verbose };
    match quackd_supervisor::run(options) {
        Ok(Ended::Stopped) => {}
        Ok(Ended::AlreadyRunning) if output.is_json() => {
            output.document(&json!({"alreadyRunning": true}))?;
        }
        Ok(Ended::AlreadyRunning) => output.text("already running\n")?,
        Err(error) => {
            let error = anyhow::Error::new(error);
            output.failure(&format!("{error:#}"));
            return Ok(Exit::Unreachable);
        }
    }
    Ok(Exit::Ok)
}
