//! The process of one far errand: `quack far-errand`, which the supervisor starts for one piece of work with an engine.
//!
//! It runs unconfined as the user, like the link process, and ends with its channel. Its monitor then kills everything that
//! it has started.

use crate::client::command;
use crate::near_copy::carry;
use futures_util::{SinkExt as _, StreamExt as _};
use quackd_ipc::first::read_first_blocking;
use quackd_ipc::{frames, link};
use quackd_process::{
    EndedBy, Exit, Role, abort_on_panic, become_session_leader, complain, harden,
    rank_above_parent, run, set_process_name, split_off_monitor,
};
use quackd_protocol::far_errand::{
    FromErrand, MAX_ERRAND_OUTPUT, RanErrand, RunErrand, TO_ERRAND_TAGS, ToErrand,
};
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::worker::EXIT_TERMINAL;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;
use tokio_util::codec::Framed;

/// Maximum size of the request, in bytes.
const MAX_REQUEST: usize = 1024 * 1024;

/// Longest reason of a failure, in characters.
const MAX_REASON: usize = 600;

/// Runs as the process of one errand. Called by `quack far-errand` before any other code in the process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the monitor.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    match enter().and_then(|(control, errand)| serve(control, errand)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot work with the engine: {error}"));
            ExitCode::from(EXIT_TERMINAL)
        }
    }
}

/// Runs the single-threaded part of the start, as in a session's worker.
fn enter() -> io::Result<(OwnedFd, ToErrand)> {
    split_off_monitor()?;
    set_process_name("quack-errand");
    harden(Role::Link)?;
    // If memory runs out, this process ends before the supervisor.
    rank_above_parent().ok();
    // The client must not ask on the terminal on which the daemon was started.
    become_session_leader();
    let control = link::take_control_channel()?;
    let errand = read_first_blocking(control.as_fd(), MAX_REQUEST, TO_ERRAND_TAGS)?;
    Ok((control, errand))
}

fn serve(control: OwnedFd, errand: ToErrand) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut channel = Framed::new(link::adopt(control)?, frames::codec());
        let answer = tokio::select! {
            answer = carry_out(errand) => answer,
            // The supervisor sends nothing more, so this means that the channel is closed.
            _ = channel.next() => return Ok(()),
        };
        channel.send(frames::encode(&answer).map_err(io::Error::other)?).await
    });
    // A blocked thread must not keep this process.
    runtime.shutdown_background();
    served
}

async fn carry_out(errand: ToErrand) -> FromErrand {
    let limit = Duration::from_millis(errand.limit_ms());
    match errand {
        ToErrand::Run(errand) => {
            run_command(errand, limit).await.map_or_else(failed, FromErrand::Ran)
        }
        ToErrand::Send(errand) => match carry(*errand, limit).await {
            Ok(sent) => FromErrand::Sent(sent),
            Err(error) => failed(error.to_string()),
        },
    }
}

fn failed(text: String) -> FromErrand {
    FromErrand::Failed { text: message_line(&text, MAX_REASON) }
}

/// Runs a command to its end.
async fn run_command(errand: RunErrand, limit: Duration) -> Result<RanErrand, String> {
    let RunErrand { words, env, .. } = errand;
    let program = words.first().cloned().ok_or("the command is empty")?;
    let mut command = command("far-errand", &words, &env);
    command.deadline = limit;

    let finished = run(command).await.map_err(|error| match std::error::Error::source(&error) {
        Some(source) => format!("cannot start {program}: {source}"),
        None => format!("cannot start {program}: {error}"),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let head = |bytes: &[u8]| text(bytes.get(..MAX_ERRAND_OUTPUT).unwrap_or(bytes));
    let errors = [finished.stderr.head.as_slice(), &finished.stderr.tail].concat();
    let end = errors.len().saturating_sub(MAX_ERRAND_OUTPUT);
    Ok(RanErrand {
        code: match finished.exit {
            Exit::Code(code) if finished.ended_by == EndedBy::Itself => Some(code),
            _ => None,
        },
        timed_out: finished.ended_by == EndedBy::Deadline,
        stdout: head(&finished.stdout.head),
        stderr: text(errors.get(end..).unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ran(script: &str, limit: Duration) -> RanErrand {
        let words = ["/bin/sh", "-c", script].map(str::to_owned).into();
        let errand = RunErrand { words, env: Vec::new(), limit_ms: 0 };
        run_command(errand, limit).await.unwrap()
    }

    #[tokio::test]
    async fn a_command_is_run_once_and_its_outputs_are_bounded() {
        quackd_process::restore_after_fork().ok();
        let minute = Duration::from_secs(60);
        let made = ran("echo made; echo warned >&2; exit 3", minute).await;
        let expected = RanErrand {
            code: Some(3),
            timed_out: false,
            stdout: "made\n".to_owned(),
            stderr: "warned\n".to_owned(),
        };
        assert_eq!(made, expected);
        let long = ran("head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2", minute).await;
        assert_eq!((long.code, long.stdout.len()), (Some(0), MAX_ERRAND_OUTPUT));
        assert!(long.stderr.len() <= MAX_ERRAND_OUTPUT);

        let slow = ran("echo begun; exec sleep 600", Duration::from_millis(300)).await;
        assert!(slow.timed_out && slow.code.is_none(), "{slow:?}");

        let missing = vec!["/nosuch/program".to_owned()];
        let errand = RunErrand { words: missing, env: Vec::new(), limit_ms: 0 };
        let error = run_command(errand, minute).await.unwrap_err();
        assert!(error.contains("/nosuch/program"), "{error}");
    }
}
