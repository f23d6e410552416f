//! The disk becomes full, then has space again.

use super::{Client, OnDisk, bytes, fresh_directory, skipped};
use crate::harness::{Daemon, KillOnDrop, Wire, program, wait_for};
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::json;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Number of sessions that the daemon lists.
fn n_listed(wire: &Wire) -> usize {
    super::array(&wire.request("sessions", json!({"all": true}))["sessions"]).len()
}

#[test]
fn a_file_that_may_not_grow_costs_the_change_and_neither_file() {
    let mut daemon = Daemon::absent();
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let mut client = Client::connect(&daemon);
    let mut n_directories = 0;
    let mut attach = |safe: bool| {
        n_directories += 1;
        let path = fresh_directory(&daemon, &format!("d{n_directories}"));
        client.attach(&path, safe).expect("an answer").map(|_| ())
    };
    for _ in 0..3 {
        attach(true).unwrap();
    }
    let limit = |bytes: Option<u64>| {
        // Set only the soft limit, so that it can be raised again.
        let pid = rustix::process::Pid::from_raw(daemon.pid());
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    let before = bytes(&daemon.app());
    let n_sessions = n_listed(&wire);
    let [metadata_bytes, state_bytes] =
        before.clone().map(|bytes| u64::try_from(bytes.len()).unwrap());
    assert!(metadata_bytes < state_bytes);
    // First neither file fits, then the metadata would fit, and then the old state.
    for room in [10, metadata_bytes, state_bytes] {
        for safe in [false, true] {
            limit(Some(room));
            let text = attach(safe).expect_err("no room");
            assert!(text.starts_with("Disk is full: "), "{text}");
            assert_eq!(n_listed(&wire), n_sessions, "memory and disk agree");
            assert!(bytes(&daemon.app()) == before, "with room for {room} bytes");
            assert_eq!(session.bash("echo fine"), "fine\n\n[Exit code: 0]");
            limit(None);
        }
    }
    attach(true).unwrap();
    attach(false).unwrap();
    assert_eq!(OnDisk::read(&daemon.app()).sessions.len(), n_sessions + 2);
}

/// A daemon whose state directory is a separate small disk, visible only to the daemon and its
/// children.
pub(super) struct SmallDisk {
    // Dropped before the directory of its daemon.
    child: KillOnDrop,
    pub(super) world: Daemon,
}

impl SmallDisk {
    /// Mounts a disk of `mib` MiB. The error gives the reason why this machine does not allow it.
    pub(super) fn start(mib: usize) -> Result<Self, String> {
        // An ordinary user may mount in a user namespace, where user namespaces are available.
        Self::start_in("-m", mib, "").or_else(|_| Self::start_in("-rm", mib, ""))
    }

    /// Like [`SmallDisk::start`]. After the daemon has stopped, the disk becomes full, and another daemon starts.
    fn start_twice(mib: usize) -> Result<Self, String> {
        let quack = env!("CARGO_BIN_EXE_quack");
        let first = format!("'{quack}' daemon; head -c 1G /dev/zero > fill 2> /dev/null;");
        Self::start_in("-m", mib, &first).or_else(|_| Self::start_in("-rm", mib, &first))
    }

    fn start_in(namespaces: &str, mib: usize, before: &str) -> Result<Self, String> {
        let world = Daemon::absent();
        std::fs::create_dir(world.app()).expect("a place for the disk");
        let quack = env!("CARGO_BIN_EXE_quack");
        let script = format!(
            "mount -t tmpfs -o size={mib}m,mode=700 none '{0}' || exit 99; cd '{0}'; {before} exec '{quack}' daemon",
            world.app().display()
        );
        let mut unshare = program("unshare");
        unshare.args([namespaces, "/bin/sh", "-c", &script]).env_clear();
        let environment = world.command(&[]);
        unshare.envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = unshare.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("cannot start unshare: {error}"))?;
        let mut disk = Self { child: child.into(), world };
        wait_for("the daemon to answer, or to end", || {
            if let Some(status) = disk.child.try_wait().expect("wait") {
                return Some(Err(format!("cannot mount in a namespace: {status}")));
            }
            UnixStream::connect(disk.app().join("daemon.sock")).ok().map(|_| Ok(()))
        })?;
        Ok(disk)
    }

    /// The state directory as seen by the daemon.
    pub(super) fn app(&self) -> PathBuf {
        let app = self.world.app();
        let within = app.strip_prefix("/").expect("an absolute path");
        Path::new("/proc").join(self.child.id().to_string()).join("root").join(within)
    }

    pub(super) fn attach(&self, path: &Path, safe: bool) -> Result<(), String> {
        let stream = UnixStream::connect(self.app().join("daemon.sock")).expect("connect");
        Client::over(stream).attach(path, safe).expect("an answer").map(|_| ())
    }
}

#[test]
fn a_disk_that_is_full_and_then_is_not_loses_nothing() {
    let disk = match SmallDisk::start(1) {
        Ok(disk) => disk,
        Err(why) => return skipped("a_disk_that_is_full_and_then_is_not_loses_nothing", &why),
    };
    let repo = disk.world.repo("a");
    let wire = Wire::connect(&disk.app().join("daemon.sock"));
    let session = wire.attach(repo.path());
    session.bash("true");
    disk.attach(&fresh_directory(&disk.world, "kept"), true).unwrap();
    let (before, n_sessions) = (bytes(&disk.app()), n_listed(&wire));

    let fill = disk.app().join("fill");
    let mut file = std::fs::File::create(&fill).unwrap();
    let full = std::io::copy(&mut std::io::repeat(b'x'), &mut file).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    drop(file);
    for (name, safe) in [("b", true), ("c", false)] {
        let path = fresh_directory(&disk.world, name);
        let text = disk.attach(&path, safe).expect_err("no room");
        assert!(text.starts_with("Disk is full: "), "{text}");
        assert_eq!(n_listed(&wire), n_sessions, "memory and disk agree");
        assert!(bytes(&disk.app()) == before);
        assert_eq!(session.bash("echo fine"), "fine\n\n[Exit code: 0]");
    }

    std::fs::remove_file(&fill).unwrap();
    disk.attach(&disk.world.home().join("b"), true).expect("the first save after there is room");
    assert_eq!(n_listed(&wire), n_sessions + 1);
    assert_eq!(OnDisk::read(&disk.app()).sessions.len(), n_sessions + 1);
}

/// The calls in the journal, as `quack log` lists them.
fn logged(disk: &SmallDisk, args: &[&str]) -> String {
    let mut log = disk.world.command(&[&["log", "--all"], args].concat());
    let log = log.env("RUBBER_DUCK_APP_SUPPORT", disk.app()).output().expect("run quack log");
    assert!(log.status.success(), "{log:?}");
    String::from_utf8(log.stdout).expect("UTF-8")
}

#[test]
fn a_journal_that_begins_on_a_full_disk_goes_on_when_there_is_room_and_says_what_is_missing() {
    let disk = match SmallDisk::start_twice(4) {
        Ok(disk) => disk,
        Err(why) => {
            let name = "a_journal_that_begins_on_a_full_disk_goes_on_when_there_is_room_and_says_what_is_missing";
            return skipped(name, &why);
        }
    };
    let socket = disk.app().join("daemon.sock");
    let first = Wire::connect(&socket);
    let id = {
        let session = first.attach(disk.world.repo("a").path());
        session.bash("echo before");
        session.id.clone()
    };
    wait_for("the record of the first call", || {
        logged(&disk, &[]).contains("echo before").then_some(())
    });
    first.request("quack.shutdown", json!({}));
    drop(first);
    wait_for("the second daemon", || {
        let is_full = disk.app().join("fill").exists();
        (is_full && UnixStream::connect(&socket).is_ok()).then_some(())
    });
    let wire = Wire::connect(&socket);
    let is_low = |low: bool| {
        wait_for("a look at the disk", || {
            let ps = wire.request("quack.ps", json!({}));
            (ps["supervisor"]["disk"]["low"] == low).then_some(())
        });
    };
    is_low(true);
    let bash = |command: &str| {
        let call = json!({"sessionId": id, "tool": "bash", "arguments": command});
        wire.request("quack.tool", call)["text"].as_str().expect("a text").to_owned()
    };
    for _ in 0..3 {
        assert_eq!(bash("echo unseen"), "unseen\n\n[Exit code: 0]");
    }

    std::fs::remove_file(disk.app().join("fill")).unwrap();
    is_low(false);
    bash("echo after");
    let shown = wait_for("the record of the next call", || {
        Some(logged(&disk, &[])).filter(|shown| shown.contains("echo after"))
    });
    assert!(shown.contains("echo before") && !shown.contains("echo unseen"), "{shown}");
    let gap = "3 calls of all sessions not recorded: the disk was almost full";
    assert_eq!(shown.matches(" not recorded").count(), 1, "{shown}");
    assert!(shown.contains(gap), "{shown}");
    let listed = logged(&disk, &["--json"]);
    let listed =
        listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let gaps: Vec<_> = listed.filter(|call| call["tool"] == "journal_gap").collect();
    assert_eq!((gaps.len(), &gaps[0]["arguments"]["calls"]), (1, &json!(3)), "{gaps:?}");
}
