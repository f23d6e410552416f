//! Asks one shell for its environment. Called by the process's `answer`, and by the tests with real shells.

use crate::pipe::Pipe;
use crate::shell::{Account, Attempt, PIPE_VARIABLE, attempts, choose};
use crate::variables::{Unusable, wanted};
use quackd_process::{Command, EndedBy, Finished, LaunchError, Limits, run};
use quackd_protocol::environment::{
    CAPTURE_DEADLINE, CaptureRequest, LoginEnvironment, MAX_CAPTURE_BYTES,
};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Part of the time left that goes to an attempt after which another one follows, in tenths.
const FIRST_SHARE: u32 = 7;

/// A shell that has answered may run its exit traps for this long.
const LEAVE: Duration = Duration::from_millis(200);

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_millis(100);

/// Marks everything that the shell starts; also tells start files who is asking.
const TAG: &str = "login-environment";

/// Why there is no environment: what every way to call the shell ended with.
#[derive(Debug, thiserror::Error)]
#[error("{}", attempts.join("; "))]
pub struct CaptureError {
    attempts: Vec<String>,
}

/// Why one call gave no environment.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("cannot make a pipe: {0}")]
    Pipe(#[source] io::Error),
    #[error("{0}")]
    Launch(#[from] LaunchError),
    #[error("`{call}` {how} without telling its environment")]
    Silent { call: String, how: String },
    #[error("`{call}` told {what}")]
    Unusable { call: String, what: String },
}

/// Runs the user's shell as a login shell, with its interactive start files if that works, and gives the
/// variables that `request` names. Nothing that the shell started is left afterwards. Takes as long as the
/// request says, and two seconds more only if something hangs in the kernel.
///
/// This process must be a sub-reaper, see [`quackd_process::run`]. May be dropped at any time.
///
/// # Errors
/// See [`CaptureError`].
pub async fn capture(
    request: &CaptureRequest,
    account: Option<&Account>,
) -> Result<LoginEnvironment, CaptureError> {
    let begin = Instant::now();
    let deadline = Duration::from_millis(request.deadline_ms).min(CAPTURE_DEADLINE);
    let variable = request.base.iter().find(|(name, _)| name == "SHELL");
    let shell = choose(account, variable.map(|(_, value)| value.as_str()));
    let env = environment(request, account, &shell);
    let mut failed = Vec::new();
    let mut attempts = attempts(&shell).iter().peekable();
    while let Some(attempt) = attempts.next() {
        let left = deadline.saturating_sub(begin.elapsed());
        let limit = if attempts.peek().is_some() { left / 10 * FIRST_SHARE } else { left };
        match ask(&shell, attempt, env.clone(), request, limit).await {
            Ok(variables) => {
                return Ok(LoginEnvironment {
                    shell: shell.display().to_string(),
                    interactive: attempt.interactive,
                    variables,
                    took_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
                });
            }
            Err(error) => failed.push(error.to_string()),
        }
    }
    Err(CaptureError { attempts: failed })
}

/// What the shell starts with: what login(1) would give it.
fn environment(
    request: &CaptureRequest,
    account: Option<&Account>,
    shell: &Path,
) -> Vec<(String, String)> {
    let mut env = request.base.clone();
    env.retain(|(name, _)| name != "SHELL");
    env.push(("SHELL".to_owned(), shell.display().to_string()));
    if let Some(account) = account {
        let home = account.home.display().to_string();
        for (name, value) in
            [("HOME", home.as_str()), ("USER", &account.name), ("LOGNAME", &account.name)]
        {
            if !env.iter().any(|(there, _)| there == name) {
                env.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    env
}

async fn ask(
    shell: &Path,
    attempt: &Attempt,
    mut env: Vec<(String, String)>,
    request: &CaptureRequest,
    limit: Duration,
) -> Result<Vec<(String, String)>, AttemptError> {
    let call = || format!("{} {}", shell.display(), attempt.options.join(" "));
    let mut pipe = Pipe::create(Path::new(&request.run_dir)).map_err(AttemptError::Pipe)?;
    let home = env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| PathBuf::from(home));
    env.push((PIPE_VARIABLE.to_owned(), pipe.path().display().to_string()));
    let cancel = CancellationToken::new();
    let command = Command {
        program: shell.into(),
        args: attempt.options.iter().chain([&attempt.script]).map(Into::into).collect(),
        // Where a terminal begins.
        cwd: home.filter(|home| home.is_dir()).unwrap_or_else(|| "/".into()),
        env,
        deadline: limit,
        grace: GRACE,
        abort_grace: GRACE,
        cancel: cancel.clone(),
        tag: TAG.to_owned(),
        spill: None,
        live: None,
        limits: Limits::default(),
        group: None,
        spawn_thread: None,
    };
    let mut running = pin!(run(command));
    let answered = tokio::select! {
        finished = &mut running => {
            // All that it wrote is in the pipe.
            let answered = pipe.take();
            if answered == Ok(false) {
                return Err(AttemptError::Silent { call: call(), how: how(&finished?) });
            }
            answered.map(drop)
        }
        answered = pipe.complete() => {
            if answered.is_err() || timeout(LEAVE, &mut running).await.is_err() {
                cancel.cancel();
                // How it ends does not matter any more, only that it does.
                drop(running.await);
            }
            answered
        }
    };
    let unusable = |what: String| AttemptError::Unusable { call: call(), what };
    match (answered, pipe.answer()) {
        (Ok(()), Some(answer)) => {
            wanted(answer, request).map_err(|why: Unusable| unusable(why.to_string()))
        }
        _ => Err(unusable(format!("an environment of more than {MAX_CAPTURE_BYTES} bytes"))),
    }
}

fn how(finished: &Finished) -> String {
    match finished.ended_by {
        EndedBy::Itself => format!("ended ({})", finished.exit),
        EndedBy::Deadline | EndedBy::Abort | EndedBy::Processes => {
            format!("was ended after {:.1} s", finished.duration.as_secs_f32())
        }
    }
}
