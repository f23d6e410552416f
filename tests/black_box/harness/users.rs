//! The user who runs a daemon: root, or an ordinary user if root runs the tests. Used by the escape corpus and by other
//! tests of confinement.

use super::{Daemon, Session, Wire, program, wait_for};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The program under test.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// User id that the tests take if root runs them. No system assigns this id, so the user owns only
/// files of the case.
const NOBODY_ELSE: u32 = 60_999;

/// PATH of a case, without directories of a home.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The user who runs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// Root; available only if the tests run as root.
    Root,
    /// The user who runs the tests, or an unprivileged user if the tests run as root.
    Ordinary,
}

/// Gives this thread and its later children the rights of an ordinary user, permanently. Other
/// threads keep theirs. Does nothing if the thread is not root.
///
/// A separate program that drops the rights would not suffice: the daemon accepts only its own
/// user, and the checks must run as that user too.
pub(crate) fn become_ordinary() {
    become_user(NOBODY_ELSE);
}

/// Like [`become_ordinary`], with the given user id.
pub(crate) fn become_user(id: u32) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    set_thread_groups(&[]).expect("drop the groups");
    set_thread_gid(rustix::fs::Gid::from_raw(id)).expect("drop the group");
    set_thread_uid(rustix::fs::Uid::from_raw(id)).expect("drop the user");
}

/// The program under test, at a path where the daemon's user can execute it.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    _directory: Option<TempDir>,
}

impl Program {
    pub(crate) fn new(user: User) -> Self {
        if user == User::Root || !rustix::process::geteuid().is_root() {
            return Self { path: QUACK.into(), _directory: None };
        }
        // The build directory is often in a home that other users cannot enter.
        let directory = tempfile::Builder::new().prefix("quack").tempdir_in("/tmp").unwrap();
        let path = directory.path().join("quack");
        // Copy in a child process. A concurrent test's child could inherit the descriptor of a copy
        // made here, and a program that is open for writing cannot be executed (`ETXTBSY`).
        let copy = format!("cp '{QUACK}' '{}'", path.display());
        shell(directory.path(), &copy).expect("copy the program");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self { path, _directory: Some(directory) }
    }
}

/// Returns the tier with namespaces that a daemon of this user reports, or the reason why there is
/// none. If namespaces work for an independent program, the daemon must report such a tier.
pub(crate) fn best_tier(user: User) -> Result<&'static str, String> {
    static BEST: [OnceLock<Result<&'static str, String>>; 2] = [const { OnceLock::new() }; 2];
    let is_root = user == User::Root;
    if is_root && !rustix::process::geteuid().is_root() {
        return Err("only root can run the daemon as root".to_owned());
    }
    BEST[usize::from(is_root)].get_or_init(|| as_user(user, find_tier)).clone()
}

fn find_tier(quack: &Path) -> Result<&'static str, String> {
    let namespaces = "unshare --user --mount --pid --net --ipc --map-root-user --fork true";
    let mut daemon = Daemon::absent();
    let workspace = daemon.home().join("ws");
    std::fs::create_dir(&workspace).expect("a workspace");
    if shell(&workspace, namespaces).is_err() {
        return Err("there are no namespaces here for this user".to_owned());
    }
    let path = format!("PATH={PATH}");
    daemon.boot_with("env", &[&path, quack.to_str().expect("text"), "daemon"]);
    let wire = daemon.wire();
    match tier_of(&wire, &wire.attach(&workspace)).as_deref() {
        Ok("A") => Ok("A"),
        Ok("B") => Ok("B"),
        other => panic!("namespaces work, and the daemon reports {other:?}"),
    }
}

/// Runs `work` in a thread with the rights of this user, with a program that the user can execute.
fn as_user<T: Send>(user: User, work: impl FnOnce(&Path) -> T + Send) -> T {
    let program = Program::new(user);
    let in_thread = || {
        if user == User::Ordinary {
            become_ordinary();
        }
        work(&program.path)
    };
    std::thread::scope(|scope| scope.spawn(in_thread).join().expect("a tier"))
}

/// Starts the worker, so that no case waits for it, and returns its tier. The error is the daemon's
/// text about a worker that cannot start.
pub(crate) fn tier_of(wire: &Wire, session: &Session<'_>) -> Result<String, String> {
    let params = json!({"tool": "find_files", "sessionId": session.id,
                        "arguments": {"pattern": "notes.txt"}});
    wait_for("a worker", || {
        let reply = wire.reply("quack.tool", params.clone());
        match session.worker()["tier"].as_str() {
            Some(tier) => Some(Ok(tier.to_owned())),
            // A busy machine starts it later.
            None => (reply["data"]["busy"] != true).then(|| Err(reply.to_string())),
        }
    })
}

pub(crate) fn clean_program(root: &Path, name: &str) -> Command {
    let mut command = program(name);
    command.current_dir(root).env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    command.env("PATH", PATH).env("HOME", root.join("home"));
    command.env("LANG", "C.UTF-8").env("TERM", "dumb").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

/// Runs a script to its end and returns its output. Fails if the script fails or does not end.
pub(crate) fn shell(root: &Path, script: &str) -> Result<String, String> {
    let mut timeout = clean_program(root, "timeout");
    let output = timeout.args(["30", "bash", "-c", script]).output().expect("run bash");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(printed) } else { Err(format!("{}: {script}", output.status)) }
}
