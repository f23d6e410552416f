//! bash: one command line, run by a shell in the workspace, or in safe mode without one. In the background it
//! becomes a job ([`crate::jobs`]).

use crate::arguments::Arguments;
use crate::bash_text::{self, Ending};
use crate::bounds::{Bounds, Cutoff};
use crate::denied::{Finder, Found};
use crate::live::LiveText;
use crate::{Call, Output, Toolbox, Update, jobs, safe_mode};
use quackd_process::{Command, Group, LaunchError, Limits, Live, SpawnThread, SpillTarget};
use quackd_protocol::limits;
use quackd_protocol::tools::safe_mode_rule;
use quackd_sandbox::Root;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const COMMAND: &[&str] = &["command", "cmd"];

/// Where programs are looked for if the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What a call of bash means: a program and what it is started with.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) line: String,
    program: OsString,
    args: Vec<OsString>,
    cwd: PathBuf,
    env: Vec<(String, String)>,
    limits: Limits,
    group: Option<Arc<Group>>,
    spawn_thread: Option<Arc<SpawnThread>>,
}

pub(crate) async fn bash(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    if let Some(refused) = toolbox.confinement.refuse_unconfined("bash") {
        return refused;
    }
    let command_line = match command_line(toolbox, call, &root, arguments, bounds).await {
        Ok(command_line) => command_line,
        Err(answer) => return answer,
    };
    let finder = Finder::new(&toolbox.confinement, root.path())
        .watching(&toolbox.watched)
        .keeping(&toolbox.upstreams)
        .during(toolbox.attempts.begin());
    if arguments.is_true("background") {
        return jobs::start(toolbox, call, command_line, finder, arguments, bounds).await;
    }
    let limit = requested_limit(arguments).map_or(bounds.limit, |limit| limit.min(bounds.limit));
    let spent = bounds.limit.saturating_sub(bounds.deadline.duration_since(Instant::now()));
    let live = call.watch.as_ref().map(|watch| LiveText::new(Live::default(), Rc::clone(watch)));
    let running = quackd_process::run(Command {
        deadline: limit.saturating_sub(spent),
        cancel: bounds.cancel.clone(),
        spill: Some(spill_target(toolbox, &call.call_id)),
        live: live.as_ref().map(LiveText::source),
        flow: call.flow.clone(),
        ..command_line.command(call.call_id.clone())
    });
    let (finished, update) = show_while(running, live).await;
    match finished {
        Ok(finished) => {
            let processes = toolbox.limits.processes;
            let Found { denials, line } = finder.find(&finished).await;
            let told = finder.look_at_watched().await;
            let denied = told.after(line);
            let ending = Ending { finished, limit, processes, denials, denied };
            let mut output = Output { update, ..bash_text::compose(ending) };
            output.report.audit = told.list;
            output
        }
        Err(LaunchError::Aborted) => Output::cut_off("bash", bounds, Cutoff::Aborted),
        Err(error) => launch_failed(&error),
    }
}

/// What is to be run, or the answer of a call that runs nothing.
async fn command_line(
    toolbox: &Toolbox,
    call: &Call,
    root: &Root,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Result<CommandLine, Output> {
    let line = arguments
        .text(COMMAND)
        .ok_or_else(|| Output::error("Missing required parameter 'command'"))?
        .to_owned();
    let cwd = root.path().to_path_buf();
    let mut env = toolbox.env.clone();
    let (limits, group) = (toolbox.limits.clone(), toolbox.group.clone());
    let spawn_thread = toolbox.spawn_thread.clone();
    if !(toolbox.safe_mode || call.safe_mode) {
        let (program, args) = shell(&line);
        let (program, args) = toolbox.confined(program, args);
        env.extend(upstreams(toolbox, bounds).await?);
        return Ok(CommandLine { line, program, args, cwd, env, limits, group, spawn_thread });
    }
    let (program, args) = safe_mode::parse(&line)
        .map_err(|error| Output::error(error).with_hint(Some(safe_mode_rule())))?;
    let (path, workspace) = (toolbox.variable("PATH").map(str::to_owned), cwd.clone());
    // The program that starts it would say in other words that it is not there.
    let wanted = toolbox.must_keep_from_writing().then(|| program.clone());
    let look = move || {
        let path = path_outside(path.as_deref(), &workspace);
        let is_there = wanted.is_none_or(|wanted| is_in_path(&wanted, &path));
        (path, is_there)
    };
    let looked = bounds.run_blocking(look).await;
    let (path, is_there) = looked.map_err(|cutoff| Output::cut_off("bash", bounds, cutoff))?;
    if !is_there {
        let source = io::ErrorKind::NotFound.into();
        return Err(launch_failed(&LaunchError::Program { path: program.into(), source }));
    }
    env.retain(|(name, _)| name != "PATH");
    env.push(("PATH".to_owned(), path));
    let args = args.into_iter().map(OsString::from).collect();
    let (program, args) = toolbox.kept_from_writing(program.into(), args);
    Ok(CommandLine { line, program, args, cwd, env, limits, group, spawn_thread })
}

/// The variables by which git reads the upstreams that the session keeps. A caller's own settings for git win.
async fn upstreams(toolbox: &Toolbox, bounds: &Bounds) -> Result<Vec<(String, String)>, Output> {
    if !toolbox.confinement.is_enforced() || toolbox.variable("GIT_CONFIG_COUNT").is_some() {
        return Ok(Vec::new());
    }
    let upstreams = toolbox.upstreams.clone();
    let read = bounds.run_blocking(move || upstreams.variables_blocking()).await;
    read.map_err(|cutoff| Output::cut_off("bash", bounds, cutoff))
}

impl CommandLine {
    /// The command, with no deadline but the longest and nobody who sees its output.
    pub(crate) fn command(self, tag: String) -> Command {
        Command {
            program: self.program,
            args: self.args,
            cwd: self.cwd,
            env: self.env,
            deadline: limits::MAX_JOB_TIME,
            grace: limits::DEADLINE_GRACE,
            abort_grace: limits::ABORT_GRACE,
            leave: Duration::ZERO,
            cancel: CancellationToken::new(),
            tag,
            spill: None,
            live: None,
            flow: None,
            limits: self.limits,
            group: self.group,
            spawn_thread: self.spawn_thread,
        }
    }
}

/// Runs a command to its end and shows meanwhile what it prints.
async fn show_while<T>(
    running: impl Future<Output = T>,
    live: Option<LiveText>,
) -> (T, Option<Update>) {
    let Some(mut live) = live else { return (running.await, None) };
    let finished = tokio::select! {
        biased;
        finished = running => finished,
        never = live.forward() => match never {},
    };
    (finished, live.finish())
}

/// The shell and its arguments. Not a login shell: profiles cost hundreds of milliseconds per call,
/// and the environment already holds what they set.
fn shell(line: &str) -> (OsString, Vec<OsString>) {
    let (program, options): (&str, &[&str]) =
        if cfg!(target_os = "macos") && Path::new("/bin/zsh").exists() {
            ("/bin/zsh", &["-c"])
        } else if Path::new("/bin/bash").exists() {
            // Without the last one a line that begins with a dash would be an option.
            ("/bin/bash", &["--noprofile", "--norc", "-c", "--"])
        } else {
            ("/bin/sh", &["-c"])
        };
    let args = options.iter().copied().chain([line]).map(OsString::from).collect();
    (program.into(), args)
}

/// The path of safe mode: without relative directories and without those in the workspace. What is
/// run must not come from the files that are worked on.
fn path_outside(path: Option<&str>, workspace: &Path) -> String {
    let is_outside = |directory: &&str| {
        let directory = Path::new(directory);
        directory.is_absolute()
            && directory.canonicalize().is_ok_and(|found| !found.starts_with(workspace))
    };
    let kept: Vec<&str> = path.unwrap_or(DEFAULT_PATH).split(':').filter(is_outside).collect();
    // An empty path would mean the working directory.
    if kept.is_empty() { DEFAULT_PATH.to_owned() } else { kept.join(":") }
}

/// Whether a program is where the system would look for it.
fn is_in_path(program: &str, path: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    path.split(':').any(|directory| Path::new(directory).join(program).exists())
}

/// A caller may ask for less time than the call has, never for more.
fn requested_limit(arguments: &Arguments) -> Option<Duration> {
    let limit = Duration::from_millis(arguments.number("timeout_ms")?);
    Some(limit.clamp(limits::MIN_TOOL_DEADLINE, limits::MAX_TOOL_DEADLINE))
}

fn spill_target(toolbox: &Toolbox, call_id: &str) -> SpillTarget {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let id: String = call_id.chars().take(64).map(plain).collect();
    SpillTarget {
        dir: toolbox.run_dir.clone(),
        name: format!("bash-{id}.log"),
        max_bytes: limits::MAX_SPILL_BYTES,
        max_files: limits::MAX_SPILL_FILES,
        min_free: toolbox.limits.min_free,
        threshold: limits::MAX_OUTPUT_BYTES,
        at_once: false,
    }
}

pub(crate) fn launch_failed(error: &LaunchError) -> Output {
    let hint = match error {
        LaunchError::Program { path, source } if source.kind() == io::ErrorKind::NotFound => {
            Some(format!(
                "no program is called `{}` in the directories of PATH; install it, or see PATH in `quack doctor`",
                path.display()
            ))
        }
        _ => None,
    };
    Output::error(format_args!("Failed to launch process: {}", explain(error))).with_hint(hint)
}

/// One line with the cause, in the words of the Node daemon where it has some.
fn explain(error: &LaunchError) -> String {
    match error {
        LaunchError::Program { path, source } if source.kind() == io::ErrorKind::NotFound => {
            format!("spawn {} ENOENT", path.display())
        }
        LaunchError::TooManyProcesses(cause) => format!(
            "no more processes can be started now: {cause}. Wait for running calls, or end background jobs \
             with job_kill"
        ),
        LaunchError::TooManyFiles(cause) => format!(
            "no more files can be opened now: {cause}. Wait for running calls, or end background jobs with \
             job_kill"
        ),
        LaunchError::TooLong => {
            "the command is too long: the system takes 128 KiB. Write it to a file \
                                 and run that"
                .to_owned()
        }
        other => match std::error::Error::source(other) {
            Some(cause) => format!("{other}: {cause}"),
            None => other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_system_is_told_with_what_to_do() {
        let cause = || io::Error::from_raw_os_error(11);
        let told = |error: LaunchError| launch_failed(&error).text;
        let processes = told(LaunchError::TooManyProcesses(cause()));
        assert!(processes.starts_with(
            "Error: Failed to launch process: no more processes can be started now: "
        ));
        let files = told(LaunchError::TooManyFiles(cause()));
        for text in [processes, files] {
            assert!(text.ends_with("Wait for running calls, or end background jobs with job_kill"));
        }
        assert!(told(LaunchError::TooLong).ends_with("Write it to a file and run that"));
    }
}
