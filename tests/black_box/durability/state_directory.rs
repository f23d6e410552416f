//! Wrong state directories: a directory that is not the daemon's, and a file that is not the log.
//! The start fails with an explanation and changes nothing.

use crate::harness::{Daemon, write_file};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Everything in a directory: file type, mode, modification time and content of each entry.
fn everything(dir: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = path.symlink_metadata().expect("an entry");
        let content =
            if metadata.is_file() { fs::read(&path).expect("a file") } else { Vec::new() };
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).expect("a directory").map(|it| it.unwrap().path()));
        }
        let (mode, time, more) = (metadata.mode(), metadata.mtime(), metadata.mtime_nsec());
        found.insert(path, (mode, time, more, content));
    }
    found
}

/// Runs `quack ARGS` with `dir` as the state directory. Asserts that it fails and changes nothing
/// in `dir`.
#[track_caller]
fn refused(world: &Daemon, dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let before = everything(dir);
    let mut command = world.command(args);
    command.env("RUBBER_DUCK_APP_SUPPORT", dir).stdin(std::process::Stdio::null());
    let output = command.output().expect("run quack");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(everything(dir) == before, "{args:?} has changed {}: {said}", dir.display());
    (output.status.code(), said)
}

#[test]
fn a_directory_that_is_somebody_elses_is_refused_and_left_as_it_is() {
    let world = Daemon::absent();
    let project = world.home().join("project");
    write_file(project.join("run/job-1/result.csv"), "precious");
    write_file(project.join("run.old-backup/result.csv"), "precious");
    write_file(project.join("src/main.rs"), "fn main() {}");
    write_file(project.join("metadata.json"), r#"{"name": "mine"}"#);
    fs::set_permissions(&project, fs::Permissions::from_mode(0o755)).unwrap();
    let repository = world.home().join("repository");
    write_file(repository.join(".git/HEAD"), "ref: refs/heads/main\n");
    write_file(repository.join("run/x"), "precious");
    // The user's daemon has used the wrong directory before. That does not make the directory
    // valid.
    write_file(world.home().join("run/x"), "precious");
    write_file(world.home().join("quackd.lock"), "");
    for (dir, why) in [
        (&project, "is no state directory of quackd"),
        (&repository, "is the root of a git repository"),
        (&world.home(), "is your home directory"),
    ] {
        let (code, said) = refused(&world, dir, &["daemon"]);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains(why) && said.contains("RUBBER_DUCK_APP_SUPPORT"), "{said}");
        // A service manager does not retry. A subcommand that starts a daemon prints the daemon's
        // error.
        assert_eq!(refused(&world, dir, &["daemon", "--service", "systemd"]).0, Some(78));
        let (code, said) = refused(&world, dir, &["tool", "bash", "true", "-C", "/tmp"]);
        assert!(code == Some(3) && said.contains(why), "{code:?} {said}");
        for args in [&["gc"][..], &["gc", "--older-than", "1s"]] {
            let (code, said) = refused(&world, dir, args);
            assert!(code == Some(3) && said.contains(why), "{code:?} {said}");
        }
        let (code, said) = refused(&world, dir, &["uninstall", "--purge", "--yes"]);
        assert!(code == Some(1) || said.contains("not"), "{code:?} {said}");
    }
    if rustix::process::geteuid().is_root() {
        let mut command = world.command(&["daemon"]);
        let output = command.env("RUBBER_DUCK_APP_SUPPORT", "/").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(3) && said.contains("root of the file system"),
            "{said}"
        );
    }
}

#[test]
fn a_run_that_the_daemon_did_not_make_is_never_deleted() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let id = daemon.wire().attach(repo.path()).id;
    daemon.quack(&["stop"]).ok();
    daemon.wait();
    let run = daemon.app().join("run");
    // The user has created a directory with this name.
    fs::remove_dir_all(&run).unwrap();
    write_file(run.join("results/1.csv"), "precious");
    let (code, said) = refused(&daemon, &daemon.app(), &["daemon"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("was not made by quackd") && said.contains("results"), "{said}");
    fs::remove_dir_all(&run).unwrap();
    daemon.boot();
    assert!(daemon.wire().request("sessions", json!({"all": true})).to_string().contains(&id));
}

#[test]
fn a_log_that_is_a_link_or_no_file_is_not_written_and_the_daemon_says_so() {
    let world = Daemon::absent();
    let victim = world.home().join("victim");
    let log = world.app().join("duck-daemon.log");
    write_file(&victim, "precious");
    fs::create_dir(world.app()).unwrap();
    write_file(world.app().join("quackd.lock"), "");
    let refuse = |why: &str| {
        let said = world.quack(&["daemon"]);
        assert_eq!(said.code(), Some(3), "{said:?}");
        assert!(said.stderr().contains(why), "{said:?}");
        assert!(said.stderr().contains("duck-daemon.log"), "{said:?}");
        assert_eq!(world.quack(&["daemon", "--service", "systemd"]).code(), Some(78));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    };
    for target in [victim.as_path(), Path::new("nowhere"), Path::new("/dev/null")] {
        symlink(target, &log).unwrap();
        refuse("symbolic link");
        fs::remove_file(&log).unwrap();
    }
    fs::create_dir(&log).unwrap();
    refuse("not a regular file");
    fs::remove_dir(&log).unwrap();
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
    refuse("not a regular file");
    assert!(!world.app().join("nowhere").exists());
}
