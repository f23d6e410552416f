//! The internal tool for `quack.run`: starts a program on a new terminal, as a background job.

use crate::bash::{DEFAULT_PATH, detector, refuse_terminal};
use crate::call_limits::CallLimits;
use crate::command_line::CommandLine;
use crate::jobs::{self, BackgroundJob, JobRequest};
use crate::terminals::{TerminalSetup, environment};
use crate::{Call, Data, Output, Toolbox};
use quackd_protocol::terminal::{OpenTerminal, OpenedTerminal};
use quackd_protocol::tools;
use quackd_sandbox::Root;
use quackd_terminal::TerminalSize;
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shell of a user whose variables name none.
const DEFAULT_SHELL: &str = "/bin/bash";

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

    let env = environment(&toolbox.env, &toolbox.confinement.session, &request.env);
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
        Ok((_, _, None, false)) => return not_found(&name),
        Ok((root, cwd, Some(program), false)) => (root, cwd, program),
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
    let OpenTerminal { cols, rows, scrollback_bytes, record, .. } = request;
    let size = TerminalSize::new(cols, rows);
    let terminal = Some(TerminalSetup { size, scrollback_bytes, record });
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

/// Returns the program with this name, as the system would find it.
fn find_blocking(name: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| path.is_file() && access(path.as_path(), Access::EXEC_OK).is_ok();
    if name.contains('/') {
        return Some(cwd.join(name)).filter(is_program);
    }
    // An empty name would be a directory of PATH.
    let mut candidates = path.split(':').map(|directory| cwd.join(directory).join(name));
    candidates.find(is_program)
}

fn not_found(name: &str) -> Output {
    let name: String = name.chars().take(200).collect();
    let place = if name.contains('/') { "" } else { " in PATH" };
    Output::error(format_args!("{name} not found{place}"))
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

    #[test]
    fn a_program_is_found_by_its_name_or_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = Path::new("/");
        std::fs::write(dir.path().join("text"), "").unwrap();
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let found = |name: &str| find_blocking(name, &path, cwd);
        assert!(found("sh").is_some_and(|program| program.is_absolute()));
        assert_eq!(found("/bin/sh"), Some("/bin/sh".into()));
        assert_eq!(found("bin/sh"), Some("/bin/sh".into()));
        for none in ["text", "", "no-such-program", "/bin", "/nowhere/sh"] {
            assert_eq!(found(none), None, "{none}");
        }
        assert_eq!(not_found("claude").text, "Error: claude not found in PATH");
        assert_eq!(not_found("./x").text, "Error: ./x not found");
    }
}
