//! Checks that need no daemon: the state of the files, seen by the user. Used by `quack doctor`.
//!
//! Changes nothing. Problems that the daemon repairs at its start are warnings that mention this.

use crate::display;
use crate::subcommands::stop::lock_holder::is_held_blocking;
use quackd_config::{ConfigError, load_blocking, locate};
use quackd_home::Home;
use quackd_protocol::client::{Check, CheckStatus};
use quackd_protocol::limits::MAX_METADATA_BYTES;
use quackd_supervisor::held_config_blocking;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Creates a passed check.
pub(super) fn ok(name: &str, message: impl Into<String>) -> Check {
    Check { name: name.to_owned(), status: CheckStatus::Ok, message: message.into(), hint: None }
}

/// Creates a warning.
pub(super) fn warn(name: &str, message: impl Into<String>, hint: impl Into<String>) -> Check {
    Check { status: CheckStatus::Warn, hint: Some(hint.into()), ..ok(name, message) }
}

/// Creates a failed check.
pub(super) fn fail(name: &str, message: impl Into<String>, hint: impl Into<String>) -> Check {
    Check { status: CheckStatus::Fail, hint: Some(hint.into()), ..ok(name, message) }
}

/// Runs all checks. `env` returns the variables of the environment in which the next daemon would start.
pub(super) fn look_blocking(home: &Home, env: &dyn Fn(&str) -> Option<String>) -> Vec<Check> {
    vec![socket(home), config(home, env), log(home), metadata(home), state(home)]
}

fn socket(home: &Home) -> Check {
    let socket = home.socket();
    let path = at_home(&socket.path);
    let place = if socket.fallback {
        format!("{path} (the state directory's own path is too long for a socket)")
    } else {
        path
    };
    let us = rustix::process::geteuid().as_raw();
    // Another user may have created it.
    let is_foreign = |at: &PathBuf| at.symlink_metadata().is_ok_and(|status| status.uid() != us);

    match socket.path.symlink_metadata() {
        Ok(status) if status.file_type().is_socket() => match socket.alias.filter(is_foreign) {
            None => ok("socket", place),
            Some(alias) => warn(
                "socket",
                format!("{place}; another user has created {}", at_home(&alias)),
                "programs of Rubber Duck look there; give them RUBBER_DUCK_APP_SUPPORT with a shorter path",
            ),
        },
        Ok(_) => fail("socket", format!("{place} is something else"), "move it away"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => warn(
            "socket",
            format!("{place} does not exist"),
            if is_held_blocking(home) {
                "the running daemon creates it again"
            } else {
                "`quack` starts the daemon, which creates it"
            },
        ),
        Err(error) => {
            fail("socket", format!("{place}: {error}"), "check the permissions of its directory")
        }
    }
}

fn config(home: &Home, env: &dyn Fn(&str) -> Option<String>) -> Check {
    let loaded = locate(home.config_blocking(), env).and_then(|(path, is_named)| {
        load_blocking(&path, is_named, env)?;
        Ok(path)
    });

    match loaded {
        Ok(path) if path != home.config_in_state() && home.config_in_state().exists() => warn(
            "config",
            format!("{} is used; {} is not read", at_home(&path), at_home(&home.config_in_state())),
            "delete the second file, or move its settings",
        ),
        Ok(path) if path.exists() => match held_config_blocking(home, &path, Vec::new()) {
            None => ok("config", at_home(&path)),
            Some(held) => warn(
                "config",
                format!("{} {held}; its keys that allow more are not in force", at_home(&path)),
                "replace it by a copy that no session can write; `quack config show --origin` lists the keys",
            ),
        },
        Ok(path) => ok("config", format!("{} does not exist; the defaults apply", at_home(&path))),
        Err(error) => {
            let hint = match &error {
                ConfigError::Environment { variable, .. } => format!("change or unset {variable}"),
                _ => "fix it; `quack config show` reads it without a daemon".to_owned(),
            };
            fail("config", error.to_string(), hint)
        }
    }
}

fn log(home: &Home) -> Check {
    file("log", &home.log_file(), u64::MAX, |place| {
        let hint = format!("the daemon's first start creates {place}");
        warn("log", "Log file not created yet", hint)
    })
}

fn metadata(home: &Home) -> Check {
    file("metadata", &home.metadata(), MAX_METADATA_BYTES, |place| {
        ok("metadata", format!("{place} does not exist; the first session creates it"))
    })
}

/// Checks a file that has at most `max_bytes`. `absent` makes the check of a file that does not exist.
fn file(name: &str, path: &Path, max_bytes: u64, absent: impl FnOnce(&str) -> Check) -> Check {
    let place = at_home(path);
    match path.metadata() {
        Ok(status) if status.is_file() && status.len() <= max_bytes => {
            ok(name, format!("{place} ({})", display::bytes(status.len())))
        }
        Ok(status) if status.is_file() => {
            let message =
                format!("{place} has {}, which is too large", display::bytes(status.len()));
            let hint = "another program wrote it: move it away; metadata.json.bak may be valid";
            fail(name, message, hint)
        }
        Ok(_) => fail(name, format!("{place} is not a file"), "move it away"),
        Err(error) if is_missing(&error) => absent(&place),
        Err(error) => fail(name, format!("{place}: {error}"), "check its permissions"),
    }
}

fn state(home: &Home) -> Check {
    let (path, us) = (home.dir(), rustix::process::geteuid().as_raw());
    let place = at_home(path);
    let status = match path.metadata() {
        Ok(status) => status,
        Err(error) if is_missing(&error) => return absent_state(path, &place),
        Err(error) => return fail("state", format!("{place}: {error}"), "check its permissions"),
    };

    // The user's own rights are checked first: the other checks need them.
    let entered = entered_by(&status, us);
    if let (Ok(_), Err(error)) = (&entered, may_change(path)) {
        return fail(
            "state",
            format!("{place} cannot be written: {error}"),
            way_to_write(error, path),
        );
    }

    if let (Ok(_), Err(error)) = (&entered, home.check_blocking()) {
        return fail("state", error.to_string(), "nothing was changed; check what it is");
    }

    match (entered, home.rival()) {
        (Err(problem), _) => {
            let hint = "move it away, or name another one in RUBBER_DUCK_APP_SUPPORT";
            fail("state", format!("{place} {problem}"), hint)
        }
        (Ok(Some(mode)), _) => {
            let hint = format!(
                "the daemon's next start closes it, or: chmod 700 '{}'",
                display::full_path(path)
            );
            warn("state", format!("{place} can be entered by others (mode {mode:04o})"), hint)
        }
        (Ok(None), Some(rival)) => {
            let message = format!("{place} is used; {} holds sessions too", at_home(rival));
            warn("state", message, "RUBBER_DUCK_APP_SUPPORT selects one; move the other one away")
        }
        (Ok(None), None) => ok("state", place),
    }
}

/// Checks whether the missing state directory can be created.
fn absent_state(path: &Path, place: &str) -> Check {
    // A dangling link counts as existing: the daemon would not create a directory in its place.
    let above = path.ancestors().skip(1).find(|above| above.symlink_metadata().is_ok());
    let Some(above) = above else { return ok("state", format!("{place} does not exist")) };

    let message = format!("{place} does not exist and cannot be created in {}", at_home(above));
    let hint = "name another one in RUBBER_DUCK_APP_SUPPORT";
    if !above.is_dir() {
        return fail("state", format!("{message}, which is not a directory"), hint);
    }

    match may_change(above) {
        Ok(()) => {
            ok("state", format!("{place} does not exist; the daemon's first start creates it"))
        }
        Err(error) => {
            let message = format!("{message}: {error}");
            fail("state", message, way_to_write(error, above))
        }
    }
}

/// Checks whether this process may create and remove files in a directory.
fn may_change(directory: &Path) -> Result<(), Errno> {
    let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, directory, access, AtFlags::EACCESS)
}

/// Returns the fix for a directory that is not writable.
fn way_to_write(error: Errno, path: &Path) -> String {
    let place = display::full_path(path);
    match error {
        Errno::ROFS => {
            "its file system is read-only: name another place in RUBBER_DUCK_APP_SUPPORT".to_owned()
        }
        _ => format!(
            "chmod u+rwx '{place}' if it is yours, or name another place in RUBBER_DUCK_APP_SUPPORT"
        ),
    }
}

/// Returns the mode if other users may enter the directory.
fn entered_by(status: &Metadata, us: u32) -> Result<Option<u32>, String> {
    if !status.is_dir() {
        return Err("is not a directory".to_owned());
    }
    if status.uid() != us {
        return Err(format!("belongs to user {}, not to you (user {us})", status.uid()));
    }
    let mode = status.mode() & 0o7777;
    Ok(Some(mode).filter(|mode| mode & 0o077 != 0))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn at_home(path: &Path) -> String {
    display::user_path(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    fn home_at(dir: &Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        Home::resolve_blocking(&var).unwrap()
    }

    fn status_of(home: &Home, name: &str) -> (CheckStatus, String) {
        let checks = look_blocking(home, &|_| None);
        let check = checks.into_iter().find(|check| check.name == name).unwrap();
        assert_eq!(check.hint.is_some(), check.status != CheckStatus::Ok, "{check:?}");
        (check.status, check.message)
    }

    fn statuses(home: &Home) -> Vec<(String, CheckStatus)> {
        let checks = look_blocking(home, &|_| None);
        checks.into_iter().map(|check| (check.name, check.status)).collect()
    }

    #[test]
    fn a_fresh_machine_has_no_failure() {
        use CheckStatus::{Ok, Warn};
        let dir = tempfile::tempdir().unwrap();
        let found = statuses(&home_at(&dir.path().join("none")));
        let expected =
            [("socket", Warn), ("config", Ok), ("log", Warn), ("metadata", Ok), ("state", Ok)];
        assert_eq!(found, expected.map(|(name, status)| (name.to_owned(), status)));
    }

    #[test]
    fn a_directory_in_use_is_all_right() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        let home = home_at(dir.path());
        let _listener = UnixListener::bind(home.socket().path).unwrap();
        for path in [home.log_file(), home.metadata(), home.config_in_state()] {
            fs::write(path, "").unwrap();
        }
        assert!(statuses(&home).iter().all(|(_, status)| *status == CheckStatus::Ok));
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (status, message) = status_of(&home, "state");
        assert_eq!(status, CheckStatus::Warn);
        assert!(message.ends_with("can be entered by others (mode 0755)"), "{message}");
    }

    #[test]
    fn what_cannot_work_fails_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let home = home_at(dir.path());
        fs::write(home.config_in_state(), "[worker]\nidle_minuts = 3\n").unwrap();
        for path in [home.socket().path, home.log_file(), home.metadata()] {
            fs::create_dir(path).unwrap();
        }
        for (name, part) in [
            ("socket", "something else"),
            ("config", "quackd.toml:2: unknown key"),
            ("log", "not a file"),
            ("metadata", "not a file"),
        ] {
            let (status, message) = status_of(&home, name);
            assert_eq!(status, CheckStatus::Fail, "{name}");
            assert!(message.contains(part), "{name}: {message}");
        }
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(status_of(&home_at(&file), "state").0, CheckStatus::Fail);
    }

    #[test]
    fn a_place_that_cannot_be_written_fails_with_what_to_do() {
        // Root may write everywhere. The black-box test reports this skip.
        if rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o500)).unwrap();
        for path in [dir.path().to_owned(), dir.path().join("deep/er")] {
            let checks = look_blocking(&home_at(&path), &|_| None);
            let state = checks.iter().find(|check| check.name == "state").unwrap();
            assert_eq!(state.status, CheckStatus::Fail, "{state:?}");
            assert!(state.hint.as_deref().is_some_and(|hint| hint.starts_with("chmod u+rwx '")));
        }
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_place_below_what_is_no_directory_cannot_be_made() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", dir.path().join("link")).unwrap();
        for below in ["file/state", "link/state"] {
            let (status, message) = status_of(&home_at(&dir.path().join(below)), "state");
            assert_eq!(status, CheckStatus::Fail, "{below}");
            assert!(message.ends_with(", which is not a directory"), "{message}");
        }
    }

    #[test]
    fn metadata_that_nobody_would_read_fails() {
        let dir = tempfile::tempdir().unwrap();
        let home = home_at(dir.path());
        let file = fs::File::create(home.metadata()).unwrap();
        file.set_len(MAX_METADATA_BYTES + 1).unwrap();
        assert_eq!(status_of(&home, "metadata").0, CheckStatus::Fail);
    }

    #[test]
    fn two_directories_with_sessions_are_a_warning() {
        let home_dir = tempfile::tempdir().unwrap();
        let ours = home_dir.path().join(".local/state/quackd");
        let rival = home_dir.path().join("Library/Application Support/RubberDuck");
        for dir in [&ours, &rival] {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join("metadata.json"), "{}").unwrap();
            fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
        }
        let var = |name: &str| (name == "HOME").then(|| home_dir.path().into());
        let (status, message) = status_of(&Home::resolve_blocking(&var).unwrap(), "state");
        assert_eq!(status, CheckStatus::Warn);
        assert!(message.contains("holds sessions too"), "{message}");
    }
}
