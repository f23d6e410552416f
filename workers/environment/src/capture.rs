//! Captures the environment of one shell. Called by `answer` of this process, and by the tests with real shells.

use crate::confined::{CANNOT_CONFINE, Wrapper};
use crate::pipe::Pipe;
use crate::shell::{Account, Attempt, PIPE_VARIABLE, attempts, choose};
use crate::variables::{EnvironmentError, requested};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quackd_process::{
    Command, EndedBy, Exit, Finished, LaunchError, Limits, Writable, run, start_files_blocking,
};
use quackd_protocol::environment::{
    CAPTURE_DEADLINE, CaptureRequest, LoginEnvironment, MAX_CAPTURE_BYTES,
};
use quackd_protocol::foreign_text::stripped_line;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Share of the remaining time for an attempt that another one follows, in tenths.
const FIRST_SHARE: u32 = 7;

/// Time for the exit traps of a shell that has answered.
const LEAVE: Duration = Duration::from_millis(200);

/// Time between TERM and KILL. Start files lock what they change (`pyenv rehash`) and remove the lock in a trap: a
/// lock that stays delays every later login shell of the user.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Maximum time between TERM and HUP, and interval of checks in between.
const HANG_UP: Duration = Duration::from_millis(400);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum length of the reason of the wrapper, in characters.
const MAX_REASON: usize = 300;

/// Marks all processes of the shell. Start files can also read it to detect this capture.
const TAG: &str = "login-environment";

/// Error of a capture: the failure of each attempt.
#[derive(Debug, thiserror::Error)]
#[error("{}", attempts.join("; "))]
pub struct CaptureError {
    attempts: Vec<String>,
}

/// Error of one attempt.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("cannot make a pipe: {0}")]
    Pipe(#[source] io::Error),
    #[error("the shell cannot be confined: {0}")]
    Unconfined(String),
    #[error("{0}")]
    Launch(#[from] LaunchError),
    #[error("`{call}` {how} without telling its environment")]
    Silent { call: String, how: String },
    #[error("`{call}` told {what}")]
    Unusable { call: String, what: String },
}

/// Future that waits for the shell's exit after its answer.
pub(crate) type Leaving = Pin<Box<dyn Future<Output = ()>>>;

/// Future of a running shell.
type Running = Pin<Box<dyn Future<Output = Result<Finished, LaunchError>>>>;

/// Runs the user's shell as a login shell, with its interactive start files if that works, and returns the variables
/// that `request` names. No process of the shell is left afterwards. Takes at most the requested time, [`GRACE`] for
/// each attempt that did not exit, and 2 s more if a process hangs in the kernel.
///
/// This process must be a sub-reaper, see [`quackd_process::run`]. If the future is dropped, the shell is killed.
///
/// # Errors
/// See [`CaptureError`].
pub async fn capture(
    request: &CaptureRequest,
    account: Option<&Account>,
) -> Result<LoginEnvironment, CaptureError> {
    let never = CancellationToken::new();
    let (result, leaving) = capture_until(request, account, None, &never).await;
    leaving.await;
    result
}

/// Like [`capture`], but starts the shell confined by `wrapper`, and kills it when `abandon` is canceled. Returns the
/// answer before the shell has exited. The second future stops the shell and must be awaited.
pub(crate) async fn capture_until(
    request: &CaptureRequest,
    account: Option<&Account>,
    wrapper: Option<&Wrapper>,
    abandon: &CancellationToken,
) -> (Result<LoginEnvironment, CaptureError>, Leaving) {
    let begin = Instant::now();
    let deadline = Duration::from_millis(request.deadline_ms).min(CAPTURE_DEADLINE);

    let variable = request.base.iter().find(|(name, _)| name == "SHELL");
    let shell = choose(account, variable.map(|(_, value)| value.as_str()));
    let env = environment(request, account, &shell);
    let untrusted = untrusted(request, &env);

    if let Some(refused) = refused_blocking(&shell, &env, &untrusted) {
        return (Err(CaptureError { attempts: vec![refused] }), Box::pin(async {}));
    }

    let words = match wrapper.map(|wrapper| wrapper.words(&untrusted)) {
        Some(Some(words)) => Some(words),
        Some(None) => {
            let attempts = vec!["too many directories of sessions to hide from it".to_owned()];
            return (Err(CaptureError { attempts }), Box::pin(async {}));
        }
        None => None,
    };

    let mut failed = Vec::new();
    let mut attempts = attempts(&shell).iter().peekable();
    while let Some(attempt) = attempts.next().filter(|_| !abandon.is_cancelled()) {
        let left = deadline.saturating_sub(begin.elapsed());
        // The last attempt gets all the time that is left.
        let limit = if attempts.peek().is_some() { left / 10 * FIRST_SHARE } else { left };

        let (wrapper, env) = (words.as_ref(), env.clone());
        match ask(&shell, wrapper, attempt, env, request, limit, abandon).await {
            Ok((variables, leaving)) => {
                let environment = LoginEnvironment {
                    shell: shell.display().to_string(),
                    interactive: attempt.interactive,
                    variables,
                    took_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
                    confined: words.is_some(),
                };
                return (Ok(environment), leaving);
            }
            Err(error) => failed.push(error.to_string()),
        }
    }
    (Err(CaptureError { attempts: failed }), Box::pin(async {}))
}

/// The directories that sessions may write.
fn untrusted(request: &CaptureRequest, env: &[(String, String)]) -> Writable {
    let directories = request.untrusted.iter().map(PathBuf::from);
    Writable::of_blocking(directories, Path::new(value(env, "HOME").unwrap_or("/")))
}

/// Returns the reason why the shell must not be started: sessions could change it, or one of its start files.
fn refused_blocking(
    shell: &Path,
    env: &[(String, String)],
    untrusted: &Writable,
) -> Option<String> {
    let home = Path::new(value(env, "HOME")?);
    let config = value(env, "XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);

    let program = untrusted.way_blocking(shell).map(|held| (shell.to_owned(), held));
    let mut files = start_files_blocking(Some(shell), home, &config).into_iter();
    let held = program
        .or_else(|| files.find_map(|file| untrusted.held_blocking(&file).map(|held| (file, held))));

    held.map(|(file, held)| {
        format!("`{}` was not started: {} {held}", shell.display(), file.display())
    })
}

fn value<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    env.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

/// The first line of an error output, without control characters.
fn first_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().next().unwrap_or_default();
    stripped_line(line, MAX_REASON)
}

/// Returns the initial environment of the shell, as login(1) sets it.
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
            if !env.iter().any(|(known, _)| known == name) {
                env.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    env
}

async fn ask(
    shell: &Path,
    wrapper: Option<&(OsString, Vec<OsString>)>,
    attempt: &Attempt,
    mut env: Vec<(String, String)>,
    request: &CaptureRequest,
    limit: Duration,
    abandon: &CancellationToken,
) -> Result<(Vec<(String, String)>, Leaving), AttemptError> {
    let call = || format!("{} {}", shell.display(), attempt.options.join(" "));
    let mut pipe = Pipe::create(Path::new(&request.run_dir)).map_err(AttemptError::Pipe)?;

    env.push((PIPE_VARIABLE.to_owned(), pipe.path().display().to_string()));
    let (cancel, is_interactive) = (CancellationToken::new(), attempt.interactive);
    let mut running: Running =
        Box::pin(run(command(shell, wrapper, attempt, env, limit, cancel.clone())));

    let answered = tokio::select! {
        finished = &mut running => {
            // The shell has exited, so the pipe contains its complete output.
            let answered = pipe.take();
            if answered == Ok(false) {
                let finished = finished?;
                let is_unconfined = finished.exit == Exit::Code(CANNOT_CONFINE.into());
                return Err(match wrapper.filter(|_| is_unconfined) {
                    Some(_) => AttemptError::Unconfined(first_line(&finished.stderr.head)),
                    None => AttemptError::Silent { call: call(), how: how(&finished) },
                });
            }
            running = Box::pin(async move { finished });
            answered.map(drop)
        }
        answered = pipe.complete() => answered,
        () = async { tokio::select! { () = sleep(limit) => (), () = abandon.cancelled() => () } } => {
            let finished = hang_up(&cancel, running, is_interactive).await?;
            return Err(AttemptError::Silent { call: call(), how: how(&finished) });
        }
    };

    let unusable = |what: String| AttemptError::Unusable { call: call(), what };
    let variables = match (answered, pipe.answer()) {
        (Ok(()), Some(answer)) => requested(answer, request)
            .map_err(|error: EnvironmentError| unusable(error.to_string())),
        _ => Err(unusable(format!("an environment of more than {MAX_CAPTURE_BYTES} bytes"))),
    };

    let patience = if variables.is_ok() { LEAVE } else { Duration::ZERO };
    let leaving: Leaving = Box::pin(async move {
        let ended = timeout(patience, &mut running).await;
        if ended.is_err() {
            // The exit status is not used. The shell must only exit.
            hang_up(&cancel, running, is_interactive).await.ok();
        }
        drop(pipe);
    });

    match variables {
        Ok(variables) => Ok((variables, leaving)),
        Err(error) => {
            leaving.await;
            Err(error)
        }
    }
}

fn command(
    shell: &Path,
    wrapper: Option<&(OsString, Vec<OsString>)>,
    attempt: &Attempt,
    env: Vec<(String, String)>,
    limit: Duration,
    cancel: CancellationToken,
) -> Command {
    let home = env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| PathBuf::from(home));
    let arguments = attempt.options.iter().chain([&attempt.script]).map(OsString::from);
    let (program, args) = match wrapper {
        Some((program, words)) => (
            program.clone(),
            words.iter().cloned().chain([shell.into()]).chain(arguments).collect(),
        ),
        None => (shell.into(), arguments.collect()),
    };

    Command {
        program,
        args,
        // A terminal also starts in the home.
        cwd: home.filter(|home| home.is_dir()).unwrap_or_else(|| "/".into()),
        env,
        // The caller stops it earlier.
        deadline: limit + LEAVE + GRACE,
        grace: GRACE,
        abort_grace: GRACE,
        leave: GRACE,
        cancel,
        tag: TAG.to_owned(),
        spill: None,
        live: None,
        flow: None,
        input: None,
        terminal: None,
        limits: Limits::default(),
        group: None,
        spawn_thread: None,
    }
}

/// Stops a shell: TERM for all of its processes, KILL after [`GRACE`]. An interactive shell ignores TERM and would
/// continue its start files, so it gets HUP in between, as from a closed terminal.
async fn hang_up(
    cancel: &CancellationToken,
    mut running: Running,
    is_interactive: bool,
) -> Result<Finished, LaunchError> {
    cancel.cancel();
    tokio::select! {
        biased;
        // Polled first: it sends TERM.
        finished = &mut running => finished,
        () = hang_up_shell(), if is_interactive => running.await,
    }
}

/// Sends HUP to the shell once the programs that it waits for have exited. The shell forwards HUP, which would
/// interrupt their traps.
async fn hang_up_shell() {
    let shells = children(Path::new("/proc/thread-self"));
    let of_shells = || {
        let path = |pid: &i32| PathBuf::from(format!("/proc/{pid}/task/{pid}"));
        shells.iter().flat_map(move |pid| children(&path(pid))).collect::<Vec<i32>>()
    };

    let (waited_for, until) = (of_shells(), Instant::now() + HANG_UP);
    while Instant::now() < until && of_shells().iter().any(|pid| waited_for.contains(pid)) {
        sleep(POLL_INTERVAL).await;
    }
    // Read the children again: the number of a former child may belong to another process. Children are reaped on
    // this thread.
    for pid in children(Path::new("/proc/thread-self")) {
        if shells.contains(&pid) {
            kill(Pid::from_raw(pid), Signal::SIGHUP).ok();
        }
    }
}

/// Returns the children of a thread. Empty if the system does not list them.
fn children(thread: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(thread.join("children")).unwrap_or_default();
    let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter(|pid| 0 < *pid).collect()
}

fn how(finished: &Finished) -> String {
    match finished.ended_by {
        EndedBy::Itself => format!("ended ({})", finished.exit),
        EndedBy::Deadline | EndedBy::Abort | EndedBy::Processes | EndedBy::Memory => {
            format!("was ended after {:.1} s", finished.duration.as_secs_f32())
        }
    }
}
