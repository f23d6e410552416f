//! The internal tool for `quack.run`: starts a program on a new terminal, as a background job.

use crate::bash::{DEFAULT_PATH, detector, refuse_terminal};
use crate::call_limits::CallLimits;
use crate::command_line::CommandLine;
use crate::jobs::{self, BackgroundJob, JobRequest};
use crate::terminals::{TerminalSetup, environment};
use crate::{Call, Data, Output, Toolbox};
use quackd_protocol::terminal::{OpenTerminal, OpenedTerminal};
use quackd_protocol::{guest_agents, tools};
use quackd_sandbox::Root;
use quackd_terminal::TerminalSize;
use rustix::fs::{Access, Mode, OFlags, access, open};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shell of a user whose variables name none.
const DEFAULT_SHELL: &str = "/bin/bash";

/// Bytes at the beginning of a script in which the system looks for its interpreter.
const SCRIPT_BYTES: usize = 256;

/// Starts the program.
pub(crate) async fn quack_open_terminal(
    toolbox: &Toolbox,
    call: &Call,
    bounds: &CallLimits,
) -> Output {
    let Ok(request) = serde_json::from_str::<OpenTerminal>(&call.spec.arguments) else {
        return Output::error("The request for a terminal is invalid");
    };
    if let Some(refused) = refuse_terminal(toolbox, call) {
        return refused;
    }

    let env =
        environment(&toolbox.env, &toolbox.confinement.session, &toolbox.run_dir, &request.env);
    let name = request.argv.first().cloned();
    let name = name.unwrap_or_else(|| variable(&env, "SHELL").unwrap_or(DEFAULT_SHELL).to_owned());
    let path = variable(&env, "PATH").unwrap_or(DEFAULT_PATH).to_owned();

    let replaceable = toolbox.replaceable();
    let (searched, cwd) = (name.clone(), call.spec.cwd.clone());
    let look = move |root: Arc<Root>| {
        let is_outdated = replaceable.is_some_and(|files| files.are_noticed_blocking());
        let cwd = root.path().join(cwd);
        let program = find_blocking(&searched, &path, &cwd);
        (root, cwd, program, is_outdated)
    };
    let looked = toolbox.in_root(tools::OPEN_TERMINAL, bounds, look).await;
    let (root, cwd, program) = match looked {
        Ok((_, _, _, true)) => return Toolbox::outdated(),
        Ok((_, _, Err(why), false)) => return Output::error(why.text(&name)),
        Ok((root, cwd, Ok(program), false)) => (root, cwd, program),
        Err(answer) => return answer,
    };

    let args = request.argv.iter().skip(1).map(Into::into).collect();
    let (program, args) = toolbox.confined(program.into(), args);
    let command_line = CommandLine {
        line: line(&request.argv, &name),
        program,
        args,
        cwd,
        env,
        limits: toolbox.limits.clone(),
        group: toolbox.group.clone(),
        spawn_thread: toolbox.spawn_thread.clone(),
    };

    let finder = detector(toolbox, &root, &command_line).await;
    let OpenTerminal { cols, rows, scrollback_bytes, record, colors, .. } = request;
    let size = TerminalSize::new(cols, rows);
    let terminal = Some(TerminalSetup { size, scrollback_bytes, record, colors });
    let job = JobRequest { command_line, finder, limit: None, terminal };
    match jobs::start(toolbox, call, job, bounds).await {
        Ok(job) => opened(&job).await,
        Err(answer) => answer,
    }
}

/// Returns the value of a variable. The last definition of a name applies.
fn variable<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// Reason why the system cannot start a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unusable {
    Missing,
    /// It is a link whose target does not exist for the session.
    Dangling,
    Directory,
    NotExecutable,
    NoInterpreter,
}

impl Unusable {
    fn text(self, name: &str) -> String {
        let is_agent = guest_agents::find(name).is_some();
        let name: String = name.chars().take(200).collect();
        match self {
            Self::Missing if name.contains('/') => format!("{name} not found"),
            Self::Missing if is_agent => {
                format!("{name} not found in PATH; quack agents lists the searched directories")
            }
            Self::Missing => format!("{name} not found in PATH"),
            Self::Dangling => format!(
                "{name} is a link to a file that is missing or not visible in this session; install the program where \
                 sessions see it, such as ~/.local, or put the directory of the file into PATH"
            ),
            Self::Directory => format!("{name} is a directory"),
            Self::NotExecutable => format!("{name} is not executable"),
            Self::NoInterpreter => format!("the interpreter of {name} is missing"),
        }
    }
}

/// Returns the program with this name, as the system would find it.
///
/// # Errors
/// The reason of the first file with this name, if there is one.
fn find_blocking(name: &str, path: &str, cwd: &Path) -> Result<PathBuf, Unusable> {
    if name.contains('/') {
        return usable_blocking(cwd.join(name), cwd);
    }

    let mut why = Unusable::Missing;
    for directory in path.split(':') {
        match usable_blocking(cwd.join(directory).join(name), cwd) {
            Err(reason) if why == Unusable::Missing => why = reason,
            Err(_) => {}
            program => return program,
        }
    }
    Err(why)
}

fn usable_blocking(program: PathBuf, cwd: &Path) -> Result<PathBuf, Unusable> {
    let file = program.metadata().map_err(|_error| match program.symlink_metadata() {
        Ok(_) => Unusable::Dangling,
        Err(_) => Unusable::Missing,
    })?;
    if file.is_dir() {
        return Err(Unusable::Directory);
    }
    if !file.is_file() || access(program.as_path(), Access::EXEC_OK).is_err() {
        return Err(Unusable::NotExecutable);
    }

    let interpreter = interpreter_blocking(&program);
    if interpreter.is_some_and(|interpreter| !cwd.join(interpreter).exists()) {
        return Err(Unusable::NoInterpreter);
    }
    Ok(program)
}

/// Returns the program that the first line of a script names. `None` for a file that is no script or cannot be read.
fn interpreter_blocking(program: &Path) -> Option<PathBuf> {
    // Another process may have put a pipe there, which must not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(open(program, flags, Mode::empty()).ok()?);
    let mut begin = [0; SCRIPT_BYTES];
    let n = file.read(&mut begin).ok()?;

    let line = begin.get(..n)?.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    Some(OsStr::from_bytes(words.next()?).into())
}

/// Returns the command as lists show it.
fn line(argv: &[String], program: &str) -> String {
    if argv.is_empty() { program.to_owned() } else { argv.join(" ") }
}

async fn opened(job: &BackgroundJob) -> Output {
    let mut output = jobs::started(job);
    let recording = match &job.terminal {
        Some(terminal) => terminal.recording().await,
        None => Ok(None),
    };
    if let Err(problem) = recording {
        output.text.push_str(&format!("\n[Note: {problem}]"));
    }
    let recording = recording.ok().flatten().map(|path| path.to_string_lossy().into_owned());
    let opened = OpenedTerminal { terminal_id: job.id.clone(), recording };
    Output { data: Some(Data::of(&opened)), ..output }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_program_is_found_by_its_name_or_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = Path::new("/");
        for (name, text, mode) in [
            ("text", "", 0o644),
            ("script", "#! /bin/sh -e\n", 0o755),
            ("old", "#!/no/such/interpreter\n", 0o755),
            ("sh", "", 0o644),
        ] {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        }
        symlink("../lib/node_modules/a.js", dir.path().join("linked")).unwrap();
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let found = |name: &str| find_blocking(name, &path, cwd);

        assert!(found("sh").is_ok_and(|program| program.ends_with("bin/sh")));
        assert_eq!(found("/bin/sh"), Ok("/bin/sh".into()));
        assert_eq!(found("bin/sh"), Ok("/bin/sh".into()));
        assert_eq!(found("script"), Ok(dir.path().join("script")));
        for (name, why) in [
            ("no-such-program", "no-such-program not found in PATH"),
            ("claude", "claude not found in PATH; quack agents lists the searched directories"),
            ("/nowhere/sh", "/nowhere/sh not found"),
            (
                "linked",
                "linked is a link to a file that is missing or not visible in this session; install the program where \
                 sessions see it, such as ~/.local, or put the directory of the file into PATH",
            ),
            ("/bin", "/bin is a directory"),
            ("text", "text is not executable"),
            ("old", "the interpreter of old is missing"),
        ] {
            // The machine may have this agent.
            let reason =
                if name == "claude" { Unusable::Missing } else { found(name).unwrap_err() };
            assert_eq!(reason.text(name), why);
        }
    }
}
