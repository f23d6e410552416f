//! The first frame for a worker on this machine: replaces what belongs to the supervisor's machine.

use crate::far_files::FarFiles;
use quackd_environment_worker::{Account, capture};
use quackd_process::{SYSTEM_PATH, complain};
use quackd_protocol::credentials::Credentials;
use quackd_protocol::environment::CaptureRequest;
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::places::refusal;
use quackd_protocol::worker::{SandboxStart, Start};
use std::fs;

/// Time for the login shell, in milliseconds. With the time to kill it, shorter than the silence of a lost link.
const SHELL_MS: u64 = 5_000;

/// Variables that commands get in any case.
const NAMES: [&str; 8] = ["HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR"];
const PREFIXES: [&str; 2] = ["LC_", "XDG_"];

/// Returns the variables of this process that commands may get.
pub(crate) fn kept(variables: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let is_kept = |name: &str| {
        NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    variables.filter(|(name, _)| is_kept(name)).collect()
}

/// Reads the environment of commands from a login shell on this machine: the usual variables, and those that the first
/// frame names. Without an answer in time, returns the variables of this process.
pub(crate) async fn environment(
    base: Vec<(String, String)>,
    start: &Start,
    account: Option<&Account>,
    files: &FarFiles,
) -> Vec<(String, String)> {
    let named = start.env.iter().map(|(name, _)| name.clone());
    let request = CaptureRequest {
        run_dir: files.run_dir().display().to_string(),
        base: base.clone(),
        names: NAMES.map(str::to_owned).into_iter().chain(named).collect(),
        prefixes: PREFIXES.map(str::to_owned).into(),
        deadline_ms: SHELL_MS,
        // No start file in the workspace is run.
        untrusted: FarWorkspace::of(&start.workspace).map(|far| far.path).into_iter().collect(),
    };
    let mut env = match capture(&request, account).await {
        Ok(login) => login.variables,
        Err(error) => {
            complain(&format!("the login shell's environment is unknown: {error}"));
            base
        }
    };
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".to_owned(), SYSTEM_PATH.to_owned()));
    }
    env
}

/// Returns the frame for this machine.
///
/// # Errors
/// No session may work in the workspace. The text is for the user.
pub(crate) fn adjusted_blocking(
    start: Start,
    env: Vec<(String, String)>,
    files: &FarFiles,
) -> Result<Start, String> {
    let far = FarWorkspace::of(&start.workspace).ok_or("the workspace is no far one")?;
    let workspace = real_workspace_blocking(&far, files)?;

    let Start { proto, session_id, label, safe_mode, respect_ignore_files, .. } = start;
    let mut limits = start.limits;
    // The engine limits the memory, and the control group is one of the other machine.
    limits.memory_bytes = None;

    let mut policy = start.sandbox.policy;
    policy.writable_roots.clear();
    if policy.hosts.take().is_some() {
        // Without the supervisor's proxy.
        complain("the network by hosts is off in a far session");
    }

    Ok(Start {
        proto,
        session_id,
        label,
        workspace,
        run_dir: files.run_dir().display().to_string(),
        env,
        safe_mode,
        respect_ignore_files,
        limits,
        sandbox: SandboxStart {
            policy,
            tier: start.sandbox.tier,
            home: files.home.display().to_string(),
            state_dir: files.state.display().to_string(),
            ..SandboxStart::default()
        },
        credentials: Credentials::default(),
        is_far: true,
        far: None,
    })
}

fn real_workspace_blocking(far: &FarWorkspace, files: &FarFiles) -> Result<String, String> {
    let place = far.place();
    let real = fs::canonicalize(&far.path).map_err(|error| format!("{}: {error}", far.shown()))?;
    if !real.is_dir() {
        return Err(format!("{} is no directory", far.shown()));
    }
    if let Some(reason) = refusal(&real, &files.home) {
        return Err(format!("{} on {place} {reason}", real.display()));
    }
    // A command could replace the program that the next start runs.
    let own = [&files.state, &files.programs];
    if own.iter().any(|own| real.starts_with(own) || own.starts_with(&real)) {
        return Err(format!("{} on {place} holds quackd's own files", real.display()));
    }
    let text = real.to_str().ok_or_else(|| format!("{} is not UTF-8", far.shown()))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use std::os::unix::fs::symlink;

    fn start(workspace: &str) -> Start {
        serde_json::from_value(serde_json::json!({
            "proto": 1, "session_id": "s", "label": "l", "workspace": workspace,
            "run_dir": "/other/run", "env": [["TOKEN", ""]], "safe_mode": true,
            "limits": { "processes": 7, "memory_bytes": 1 },
            "sandbox": {
                "policy": { "hosts": ["a.example"], "writableRoots": ["/other"] },
                "home": "/other/home", "state_dir": "/other/state", "caches": "/other/caches",
                "ports": [1], "sandbox_exec": "/other/x", "cgroup": {},
                "agents": { "directory": "/other", "kept": [], "notes": [] },
                "isolated": { "directory": "/other", "copied": {} },
            },
            "credentials": { "ssh": true, "git": true, "hosts": [] },
        }))
        .unwrap()
    }

    fn files(dir: &TestDir) -> FarFiles {
        let home = fs::canonicalize(dir.join("home")).unwrap();
        let state = home.join("state");
        FarFiles {
            session: state.join("s"),
            copy: home.join("s"),
            state,
            programs: home.join(".cache/quackd"),
            home,
        }
    }

    #[test]
    fn nothing_of_the_other_machine_is_left() {
        let dir = TestDir::with(&["home/app"]);
        symlink(dir.join("home/app"), dir.join("link")).unwrap();
        let files = files(&dir);
        let env = vec![("PATH".to_owned(), "/bin".to_owned())];
        let workspace = format!("ssh:build1:{}", dir.join("link").display());
        let start = adjusted_blocking(start(&workspace), env, &files).unwrap();

        assert_eq!(start.workspace, files.home.join("app").display().to_string());
        assert_eq!(
            (start.label.as_str(), start.safe_mode, start.limits.processes, start.is_far),
            ("l", true, Some(7), true)
        );
        assert_eq!(start.sandbox.home, files.home.display().to_string());
        let text = serde_json::to_string(&start).unwrap();
        for other in ["/other", "memory_bytes", "a.example", "TOKEN", "\"ssh\":true", "cgroup"] {
            assert!(!text.contains(other), "{other} in {text}");
        }
    }

    #[test]
    fn a_workspace_that_no_session_may_have_is_refused_with_the_reason() {
        let dir = TestDir::with(&["home/state/s"]);
        dir.write("home/file", "");
        let files = files(&dir);
        let home = files.home.display();
        for (workspace, reason) in [
            ("/".to_owned(), "root of the file system"),
            (home.to_string(), "home directory"),
            (format!("{home}/state/s"), "own files"),
            (format!("{home}/file"), "no directory"),
            (format!("{home}/none"), "No such file"),
        ] {
            let start = start(&format!("ssh:build1:{workspace}"));
            let refused = adjusted_blocking(start, Vec::new(), &files).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        assert!(adjusted_blocking(start("/local"), Vec::new(), &files).is_err());
    }

    #[test]
    fn commands_get_few_variables_of_the_login() {
        let all = ["HOME=/h", "SSH_AUTH_SOCK=/a", "LC_ALL=C", "XDG_RUNTIME_DIR=/r", "AWS_KEY=x"];
        let all = all.iter().filter_map(|one| one.split_once('='));
        let names = kept(all.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let names: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["HOME", "LC_ALL", "XDG_RUNTIME_DIR"]);
    }
}
