//! Fixture of one case: a home with secrets, a state directory, a workspace, and another session's directory.

use crate::confined::{Request, VARIABLE};
use quackd_protocol::policy::{Policy, Profile};
use std::fmt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Text that must never be visible inside.
pub(crate) const CANARY: &str = "canary-7f3a";

/// User that runs a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: u32,
    /// True to switch to that user, false to stay the current one.
    pub(crate) switch: bool,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}", self.id)
    }
}

/// Root also plays an ordinary user.
pub(crate) fn users() -> Vec<User> {
    let id = rustix::process::getuid().as_raw();
    let mut users = vec![User { id, switch: false }];
    if id == 0 {
        users.push(User { id: 1000, switch: true });
    }
    users
}

pub(crate) struct World {
    pub(crate) root: tempfile::TempDir,
    pub(crate) user: User,
    pub(crate) policy: Policy,
    pub(crate) path: String,
    /// True for tier D.
    pub(crate) alone: bool,
    /// True to protect the names in git directories one by one.
    pub(crate) names: bool,
    /// Processes, open files, size of files.
    pub(crate) limits: [Option<u64>; 3],
    /// The home that is shown in part, if not the world's own.
    pub(crate) home: Option<PathBuf>,
}

/// Result of a script.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    /// Both streams.
    pub(crate) output: String,
}

impl World {
    pub(crate) fn new(user: User) -> Self {
        let root = tempfile::Builder::new().prefix("confinement-").tempdir().expect("tempdir");
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned();
        let world = Self {
            root,
            user,
            policy: Policy::default(),
            path,
            alone: false,
            names: false,
            limits: [None; 3],
            home: None,
        };
        for directory in
            ["ws", "other", "home/.ssh", "home/.config", "state/run/s1", "state/run/s2"]
        {
            world.make_directory(directory);
        }
        for secret in
            ["other/secret", "home/.ssh/id_ed25519", "state/state.json", "state/run/s2/spill"]
        {
            world.write(secret, CANARY);
        }
        world.write(
            "home/.gitconfig",
            "[user]\n\tname = Ann\n\temail = ann@example.org\n[alias]\n\tx = !false\n",
        );
        world.write("ws/notes.txt", "hello notes\n");
        world
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn make_directory(&self, path: &str) {
        let mut made = self.root.path().to_path_buf();
        for part in Path::new(path) {
            made.push(part);
            if std::fs::create_dir(&made).is_ok() {
                self.own(&made);
            }
        }
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        std::fs::write(self.at(path), text).expect("write");
        self.own(&self.at(path));
    }

    fn own(&self, path: &Path) {
        if self.user.switch {
            chown(path, Some(self.user.id), Some(self.user.id)).expect("chown");
        }
    }

    /// Runs a program outside, as the user.
    pub(crate) fn outside(&self, script: &str) -> Ran {
        let mut command = Command::new("/bin/bash");
        command.args(["-c", script]).current_dir(self.at("ws")).env("HOME", self.at("home"));
        self.finish(command)
    }

    pub(crate) fn request(&self, script: &str) -> Request {
        Request {
            policy: self.policy.clone(),
            workspace: self.at("ws"),
            run_dir: self.at("state/run/s1"),
            state_dir: self.at("state"),
            home: self.home.clone().unwrap_or_else(|| self.at("home")),
            path: self.path.clone(),
            script: script.to_owned(),
            alone: self.alone,
            names: self.names,
            limits: self.limits,
        }
    }

    /// The copy of this program that confines itself and runs the script.
    pub(crate) fn command(&self, script: &str) -> Command {
        let mut command = Command::new("/proc/self/exe");
        let request = serde_json::to_string(&self.request(script)).unwrap();
        command.env(VARIABLE, request).env("CANARY", CANARY);
        command
    }

    /// Runs a bash script inside.
    pub(crate) fn inside(&self, script: &str) -> Ran {
        self.finish(self.command(&format!("exec 2>&1\n{script}")))
    }

    pub(crate) fn become_user(&self, command: &mut Command) {
        if self.user.switch {
            command.uid(self.user.id).gid(self.user.id);
        }
    }

    fn finish(&self, mut command: Command) -> Ran {
        self.become_user(&mut command);
        command.stdin(Stdio::null());
        let output = command.output().expect("start");
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ran { code: output.status.code(), output: text }
    }

    pub(crate) fn with(mut self, profile: Profile) -> Self {
        self.policy.profile = profile;
        self
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}", self.output);
        &self.output
    }
}
