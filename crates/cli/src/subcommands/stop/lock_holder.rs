//! Identifies a daemon that does not answer: its existence, its process and how to kill it. Used by `quack stop` and
//! `quack doctor`.
//!
//! The lock proves that a daemon is running. `duck-daemon.pid` contains its process id, but is only a hint: the file
//! outlives a killed daemon, and another process may have the id by now.

use quackd_home::{Home, own_file};
use rustix::process::{Pid, test_kill_process};
use std::fs::File;
use std::path::Path;

/// Maximum size of a pid file, in bytes.
const MAX_PID_FILE: u64 = 32;

/// Parts of the program name of a daemon: quackd's and Rubber Duck's.
const NAMES: [&str; 3] = ["quack", "duck", "daemon"];

/// Process that is very likely the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockHolder {
    pub(crate) pid: i32,
    /// Whether it was stopped by SIGSTOP. Then it neither answers nor reacts to SIGTERM.
    pub(crate) is_stopped: bool,
}

/// Whether a daemon holds the lock of the state directory. Changes nothing and does not block. Takes a free lock
/// briefly, shared with other checks. A daemon that starts during this time fails and is started again.
pub(crate) fn is_held_blocking(home: &Home) -> bool {
    let path = home.lock_file();
    if !path.symlink_metadata().is_ok_and(|status| status.is_file()) {
        return false;
    }
    let tried = File::open(path).map(|file| file.try_lock_shared());
    matches!(tried, Ok(Err(std::fs::TryLockError::WouldBlock)))
}

/// Returns the number in the pid file. `None` without one, and for a file that is not this user's.
pub(crate) fn pid_blocking(home: &Home) -> Option<i32> {
    let bytes = own_file::read_blocking(&home.pid_file(), MAX_PID_FILE).ok()?;
    String::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// Returns the daemon's process. `None` if it cannot be identified.
pub(crate) fn find_blocking(home: &Home) -> Option<LockHolder> {
    let pid = pid_blocking(home)?;
    // Process ids 0 and 1 are no daemon. A process that may not be signaled belongs to another user.
    let process = Pid::from_raw(Some(pid).filter(|pid| 1 < *pid)?)?;
    test_kill_process(process).ok()?;

    let folder = Path::new("/proc").join(pid.to_string());
    let state = std::fs::read_to_string(folder.join("stat")).ok().and_then(|stat| state_of(&stat));
    if state == Some('Z') {
        return None;
    }

    let is_likely = match std::fs::read(folder.join("cmdline")) {
        Ok(line) => is_named(&line),
        // macOS has no `/proc`, so only the lock is checked.
        Err(_unknown) => is_held_blocking(home),
    };
    is_likely.then_some(LockHolder { pid, is_stopped: matches!(state, Some('T' | 't')) })
}

/// Returns the commands that kill the daemon, as a part of a sentence.
pub(crate) fn way_out(holder: Option<LockHolder>, socket: &Path) -> String {
    match holder {
        Some(LockHolder { pid, is_stopped: true }) => format!(
            "process {pid} is stopped: `kill -CONT {pid}` continues it, `kill -KILL {pid}` ends it"
        ),
        Some(LockHolder { pid, is_stopped: false }) => {
            format!("`kill {pid}` ends it, `kill -KILL {pid}` if it stays")
        }
        None => format!(
            "its process is unknown: find it with `lsof '{}'`, and end it with `kill`",
            crate::display::full_path(socket)
        ),
    }
}

/// Returns the commands that kill the daemon of a state directory, as a part of a sentence.
pub(crate) fn remedy_blocking(home: &Home) -> String {
    way_out(find_blocking(home), &home.socket().path)
}

/// Returns the state letter from `/proc/PID/stat`. The process name precedes it and may contain any character.
fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether the program, or the script that it interprets, is named like a daemon.
fn is_named(line: &[u8]) -> bool {
    let words = line.split(|byte| *byte == 0).take(3).map(String::from_utf8_lossy);
    let last = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    words.map(|word| last(&word)).any(|word| NAMES.iter().any(|name| word.contains(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn home(dir: &Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        Home::resolve_blocking(&var).unwrap()
    }

    #[test]
    fn a_lock_is_held_as_long_as_its_holder_lives_and_looking_makes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        assert!(!is_held_blocking(&home) && !home.lock_file().exists());
        let lock = quackd_home::lock_blocking(&home).unwrap();
        assert!(is_held_blocking(&home));
        drop(lock);
        assert!(!is_held_blocking(&home));
        assert!(quackd_home::lock_blocking(&home).unwrap().is_some());
    }

    #[test]
    fn a_number_that_is_no_process_or_nobodys_daemon_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        assert_eq!(find_blocking(&home), None);
        for text in ["", "0", "1", "-7", "2147483647", "x", "99999999999999999999"] {
            fs::write(home.pid_file(), text).unwrap();
            assert_eq!(find_blocking(&home), None, "{text}");
        }
    }

    #[test]
    fn a_daemon_is_known_by_its_program_or_its_script_and_by_nothing_else() {
        for (line, expected) in [
            (&b"/usr/bin/quack\0daemon\0"[..], true),
            (b"duck-daemon\0", true),
            (b"node\0/opt/duck-daemon/index.js\0--daemon\0", true),
            (b"/home/duck/bin/vim\0notes\0", false),
            (b"vim\0a\0b\0duck\0", false),
            (b"", false),
        ] {
            assert_eq!(is_named(line), expected, "{:?}", String::from_utf8_lossy(line));
        }
        assert_eq!(state_of("12 (a) b) T 1 2"), Some('T'));
        assert_eq!(state_of("nothing"), None);
    }

    #[test]
    fn the_way_out_names_the_process_and_for_a_stopped_one_the_signal_that_ends_it() {
        let socket = Path::new("/s/daemon.sock");
        let running = way_out(Some(LockHolder { pid: 12, is_stopped: false }), socket);
        assert_eq!(running, "`kill 12` ends it, `kill -KILL 12` if it stays");
        let stopped = way_out(Some(LockHolder { pid: 12, is_stopped: true }), socket);
        assert!(stopped.contains("`kill -KILL 12` ends it"), "{stopped}");
        assert!(way_out(None, socket).contains("`lsof '/s/daemon.sock'`"));
    }
}
