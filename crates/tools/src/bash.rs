//! bash: runs one command line with a shell in the workspace, or in safe mode without a shell. In the
//! background it becomes a job ([`crate::jobs`]), which may have a terminal.

use crate::arguments::Arguments;
use crate::bash_text::{self, CommandSummary};
use crate::call_limits::{CallLimits, StopCause};
use crate::command_line::{CommandLine, launch_failed};
use crate::denials::{DenialDetector, Found};
use crate::jobs::JobRequest;
use crate::live::LiveText;
use crate::platform::USES_ZSH;
use crate::terminals::{TerminalSetup, environment};
use crate::unsigned_commits::UnsignedCommits;
use crate::upstreams::Upstreams;
use crate::{Call, Output, Toolbox, Update, jobs, safe_mode};
use quackd_process::{Command, LaunchError, Live, SpillTarget};
use quackd_protocol::approval::ApprovalKind;
use quackd_protocol::limits;
use quackd_protocol::tiers::Tier;
use quackd_protocol::tools::BashArguments;
use quackd_sandbox::Root;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// PATH if the environment has none.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(crate) async fn bash(
    toolbox: &Toolbox,
    call: &Call,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let upstreams = stored_upstreams(toolbox, call);
    let replaceable = toolbox.replaceable();
    let look = move |root| {
        let is_outdated = replaceable.is_some_and(|files| files.are_noticed_blocking());
        let upstreams = upstreams.map(|upstreams| upstreams.variables_blocking());
        (root, upstreams.unwrap_or_default(), is_outdated)
    };

    let (root, upstreams): (Arc<Root>, _) = match toolbox.in_root("bash", bounds, look).await {
        Ok((_, _, true)) => return Toolbox::outdated(),
        Ok((root, upstreams, false)) => (root, upstreams),
        Err(answer) => return answer,
    };

    if let Some(refused) = toolbox.confinement.refuse_unconfined("bash") {
        return refused;
    }

    let BashArguments { command, timeout_ms, background, tty } =
        BashArguments::of(arguments.object());
    if let Some(refused) = tty.then(|| refuse_terminal(toolbox, call)).flatten() {
        return refused;
    }
    let command_line = match command_line(toolbox, call, &root, upstreams, command, bounds).await {
        Ok(command_line) => command_line,
        Err(answer) => return answer,
    };

    let finder = detector(toolbox, &root, &command_line).await;
    let limit = timeout_ms.map(Duration::from_millis);
    if background || tty {
        let terminal = tty.then(TerminalSetup::default);
        let request = JobRequest { command_line, finder, limit, terminal };
        return in_background(toolbox, call, request, bounds).await;
    }

    let limit = shortened(limit, bounds);
    // The limit of the call includes the time before the command starts, which has passed.
    let spent = bounds.limit.saturating_sub(bounds.deadline.duration_since(Instant::now()));
    let live = call.watch.as_ref().map(|watch| LiveText::new(Live::default(), Rc::clone(watch)));

    let running = quackd_process::run(Command {
        deadline: limit.saturating_sub(spent),
        cancel: bounds.cancel.clone(),
        spill: Some(spill_target(toolbox, call.spec.call_id.as_str())),
        live: live.as_ref().map(LiveText::source),
        flow: call.flow.clone(),
        input: call.input.clone(),
        ..command_line.command(call.spec.call_id.0.clone())
    });
    let (finished, update) = show_while(running, live).await;

    match finished {
        Ok(finished) => {
            let Found { denials, line, missing } = finder.find(&finished).await;
            let changes = finder.look_at_watched(Some(&finished)).await;
            let denied = changes.after(line);

            let ending = CommandSummary { finished, limit, denials, denied };
            let mut output = Output { update, ..bash_text::compose(ending) };
            output.report.audit = changes.list;
            output.report.missing = missing;
            output
        }
        Err(LaunchError::Aborted) => Output::cut_off("bash", bounds, StopCause::Aborted),
        Err(error) => launch_failed(&error),
    }
}

/// Starts a command as a job.
async fn in_background(
    toolbox: &Toolbox,
    call: &Call,
    mut request: JobRequest,
    bounds: &CallLimits,
) -> Output {
    if request.terminal.is_some() {
        let env = &mut request.command_line.env;
        *env = environment(env, &toolbox.confinement.session, &toolbox.run_dir, &[]);
    }
    let job = jobs::start(toolbox, call, request, bounds).await;
    job.map_or_else(|answer| answer, |job| jobs::started(&job))
}

/// Returns the detector of denials for a command that is about to start. It compares with the state before the command,
/// so it records that state now.
pub(crate) async fn detector(
    toolbox: &Toolbox,
    root: &Root,
    command_line: &CommandLine,
) -> DenialDetector {
    let unsigned = match toolbox.unsigned {
        Some(why) => UnsignedCommits::before(root.path(), why).await,
        None => None,
    };
    DenialDetector::new(&toolbox.confinement, root.path())
        .watching(&toolbox.state.watched)
        .losing(&toolbox.state.lost)
        .leaving(&toolbox.state.temporary, command_line)
        .signing(unsigned)
        .keeping(&toolbox.state.upstreams)
        .during(toolbox.attempts.begin())
}

/// Returns the refusal of a terminal, which the session or the call cannot have.
pub(crate) fn refuse_terminal(toolbox: &Toolbox, call: &Call) -> Option<Output> {
    if toolbox.safe_mode || call.spec.safe_mode {
        return Some(Output::error("Terminals are disabled in safe mode"));
    }
    if toolbox.sandbox.tier == Some(Tier::D) && !toolbox.jobs().has_one_terminal() {
        return Some(Output::error(
            "Tier D has no terminal here: the system refused it at the start",
        ));
    }
    toolbox.confinement.refuse_unconfined("A terminal")
}

/// Builds the command line, or returns the answer of a call that runs nothing.
async fn command_line(
    toolbox: &Toolbox,
    call: &Call,
    root: &Root,
    upstreams: Vec<(String, String)>,
    line: Option<String>,
    bounds: &CallLimits,
) -> Result<CommandLine, Output> {
    let line = line.ok_or_else(|| Output::error("Missing required parameter 'command'"))?;

    let cwd = root.path().join(&call.spec.cwd);
    let mut env = toolbox.env.clone();
    let (limits, group) = (toolbox.limits.clone(), toolbox.group.clone());
    let spawn_thread = toolbox.spawn_thread.clone();

    // A command that the user has allowed runs as it would without safe mode, within the session's confinement.
    if !(toolbox.safe_mode || call.spec.safe_mode) || call.spec.approved {
        let (program, args) = shell(&line);
        let (program, args) = toolbox.confined(program, args);
        env.extend(upstreams);
        return Ok(CommandLine { line, program, args, cwd, env, limits, group, spawn_thread });
    }

    let (program, args) = safe_mode::parse(&line).map_err(|error| {
        let refused = Output::error(error).with_hint(Some(safe_mode::safe_mode_rule()));
        refused.may_ask(ApprovalKind::Command)
    })?;

    let path = toolbox.variable("PATH").map(str::to_owned);
    let workspace = root.path().to_path_buf();

    // The launcher would report a missing program in other words, so check for it first.
    let needed = toolbox.must_keep_from_writing().then(|| program.clone());
    let look = move || {
        let path = path_outside(path.as_deref(), &workspace);
        let is_there = needed.is_none_or(|needed| is_in_path(&needed, &path));
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

/// Returns the session's stored upstreams if git shall read them. Git settings in the caller's environment take
/// precedence.
fn stored_upstreams(toolbox: &Toolbox, call: &Call) -> Option<Upstreams> {
    let is_safe = toolbox.safe_mode || call.spec.safe_mode;
    let has_settings = toolbox.variable("GIT_CONFIG_COUNT").is_some();
    let are_read = toolbox.confinement.is_enforced() && !is_safe && !has_settings;
    are_read.then(|| toolbox.state.upstreams.clone())
}

/// Runs a command to its end and sends its output while it runs.
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

/// Returns the shell and its arguments. Not a login shell: profiles cost hundreds of milliseconds per call, and
/// the environment already contains their settings.
pub(crate) fn shell(line: &str) -> (OsString, Vec<OsString>) {
    let (program, options): (&str, &[&str]) = if USES_ZSH && Path::new("/bin/zsh").exists() {
        ("/bin/zsh", &["-c"])
    } else if Path::new("/bin/bash").exists() {
        // Without `--`, a line that begins with a dash would be an option.
        ("/bin/bash", &["--noprofile", "--norc", "-c", "--"])
    } else {
        ("/bin/sh", &["-c"])
    };
    let args = options.iter().copied().chain([line]).map(OsString::from).collect();
    (program.into(), args)
}

/// Returns the PATH of safe mode, without relative directories and directories in the workspace. Safe mode must
/// not run programs from the files that the agent edits.
pub(crate) fn path_outside(path: Option<&str>, workspace: &Path) -> String {
    let is_outside = |directory: &&str| {
        let directory = Path::new(directory);
        directory.is_absolute()
            && directory.canonicalize().is_ok_and(|found| !found.starts_with(workspace))
    };
    let kept: Vec<&str> = path.unwrap_or(DEFAULT_PATH).split(':').filter(is_outside).collect();
    // An empty path would mean the working directory.
    if kept.is_empty() { DEFAULT_PATH.to_owned() } else { kept.join(":") }
}

/// Whether the system would find the program.
fn is_in_path(program: &str, path: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    path.split(':').any(|directory| Path::new(directory).join(program).exists())
}

/// Returns the time limit of the command. A caller can shorten the call's limit, but not extend it.
fn shortened(timeout: Option<Duration>, bounds: &CallLimits) -> Duration {
    let timeout =
        timeout.map(|limit| limit.clamp(limits::MIN_TOOL_DEADLINE, limits::MAX_TOOL_DEADLINE));
    timeout.map_or(bounds.limit, |limit| limit.min(bounds.limit))
}

fn spill_target(toolbox: &Toolbox, call_id: &str) -> SpillTarget {
    // The id may come from a client: it must not lead to another directory, or be too long for a name.
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
