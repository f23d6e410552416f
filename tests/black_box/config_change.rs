//! `quack config set`, `unset` and `edit`, the home of the file, and changes that a running daemon does not have.

use crate::harness::{Cli, Daemon, write_file};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

fn of_user(world: &Daemon) -> PathBuf {
    world.home().join(".config/quackd/quackd.toml")
}

#[track_caller]
fn refused(ran: &Cli, part: &str) {
    assert_eq!(ran.code(), Some(2), "{ran:?}");
    assert!(ran.stderr().contains(part), "{ran:?}");
}

#[test]
fn keys_are_set_after_a_check_and_comments_stay() {
    let world = Daemon::absent();
    let file = of_user(&world);
    assert_eq!(world.quack(&["config", "path"]).ok().trim(), file.to_str().unwrap());
    world.quack(&["config", "set", "worker.idle_minutes", "10"]).ok();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("# mine\n{text}")).unwrap();
    for (key, value, shown) in [
        ("worker.idle_minutes", "11", "idle_minutes = 11"),
        ("model.name", "42", "name = \"42\""),
        ("model.provider", "ollama", "provider = \"ollama\""),
        ("tools.env", "[\"A\", \"B\"]", "env = [\"A\", \"B\"]"),
        ("sandbox.network", "true", "network = true"),
        ("mcp_servers.db.command", "db-mcp", "command = \"db-mcp\""),
    ] {
        world.quack(&["config", "set", key, value]).ok();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(shown) && text.starts_with("# mine\n"), "{key}: {text}");
    }
    let set = world.quack(&["config", "set", "model.key", "sk-secret"]);
    assert!(!set.ok().contains("sk-secret"), "a key is not shown");
    let before = fs::read_to_string(&file).unwrap();
    refused(
        &world.quack(&["config", "set", "worker.idle_minuts", "3"]),
        "did you mean worker.idle_minutes?",
    );
    refused(
        &world.quack(&["config", "set", "worker.idle_minutes", "soon"]),
        "`worker.idle_minutes` must be",
    );
    refused(&world.quack(&["config", "set", "sandbox.writable", "[\"/\"]"]), "sandbox.writable");
    refused(&world.quack(&["config", "set", "model.name", "a\nb = 1"]), "model.name");
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "a wrong value changes nothing");
    world.quack(&["config", "unset", "sandbox.network"]).ok();
    assert!(!fs::read_to_string(&file).unwrap().contains("network"));
    assert_eq!(world.quack(&["config", "unset", "sandbox.network"]).code(), Some(1));
}

#[test]
fn the_file_of_the_user_wins_over_the_one_in_the_state_directory() {
    let mut world = Daemon::absent();
    fs::create_dir_all(world.app()).unwrap();
    let in_state = world.app().join("quackd.toml");
    fs::write(&in_state, "worker.idle_minutes = 3\n").unwrap();
    assert_eq!(world.quack(&["config", "path"]).ok().trim(), in_state.to_str().unwrap());
    world.quack(&["config", "set", "worker.idle_minutes", "4"]).ok();
    assert!(!of_user(&world).exists(), "the file that is in use is changed");
    write_file(of_user(&world), "worker.idle_minutes = 5\n");
    world.boot();
    let config = world.wire().request("quack.config", serde_json::json!({}));
    assert_eq!(config["path"], of_user(&world).to_str().unwrap());
    let doctor = world.quack(&["doctor"]).stdout();
    assert!(doctor.contains("quackd.toml is not read"), "{doctor}");
}

#[test]
fn an_editor_changes_a_copy_that_is_used_only_if_it_is_right() {
    let world = Daemon::absent();
    let file = of_user(&world);
    world.quack(&["config", "set", "worker.idle_minutes", "10"]).ok();
    let edit = |editor: &str| {
        let mut command = world.command(&["config", "edit"]);
        command.env("VISUAL", editor).stdin(std::process::Stdio::null()).output().unwrap()
    };
    assert!(edit("sed -i s/10/12/").status.success());
    assert!(fs::read_to_string(&file).unwrap().contains("idle_minutes = 12"));
    let wrong = edit("sed -i s/12/never/");
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(1) && said.contains("your text is in "), "{said}");
    assert!(fs::read_to_string(&file).unwrap().contains("idle_minutes = 12"));
    let kept = said.split("your text is in ").nth(1).unwrap().trim();
    assert!(fs::read_to_string(kept).unwrap().contains("never"));
    fs::remove_file(kept).unwrap();
    assert_eq!(edit("false").status.code(), Some(1));
}

#[test]
fn a_change_that_the_daemon_does_not_have_is_told_until_it_is_restarted() {
    let mut world = Daemon::start();
    let repo = world.repo("a");
    let file = of_user(&world);
    let told = "was changed after the daemon had started; `quack restart` puts it in force";
    let says = |world: &Daemon, args: &[&str]| {
        let mut command = world.command(args);
        let ran =
            command.current_dir(repo.path()).stdin(std::process::Stdio::null()).output().unwrap();
        String::from_utf8(ran.stderr).unwrap()
    };
    assert!(!says(&world, &["models"]).contains(told));
    let set = world.quack(&["config", "set", "model.name", "x"]);
    assert!(set.stderr().contains("`quack restart` puts this one in force"), "{set:?}");
    // The daemon reports its start in whole seconds.
    let later = SystemTime::now() + Duration::from_secs(5);
    fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
    for args in [&["models"][..], &["say", "hi"], &["new", "--name", "x"]] {
        let said = says(&world, args);
        assert!(said.contains(told) && said.contains(file.to_str().unwrap()), "{args:?}: {said}");
    }
    let earlier = SystemTime::now() - Duration::from_secs(60);
    fs::File::options().write(true).open(&file).unwrap().set_modified(earlier).unwrap();
    world.quack(&["stop", "--yes"]).ok();
    world.wait();
    world.boot();
    assert!(!says(&world, &["models"]).contains(told));
}

#[test]
fn a_purge_leaves_a_fresh_home_as_it_was() {
    let world = Daemon::absent();
    let repo = world.repo("a");
    let fresh = world.home().join("fresh");
    fs::create_dir(&fresh).unwrap();
    let run = |args: &[&str], input: &str| {
        let mut command = world.command(args);
        command.env("HOME", &fresh).env_remove("RUBBER_DUCK_APP_SUPPORT");
        command.current_dir(repo.path()).stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    let is_empty = || fs::read_dir(&fresh).unwrap().next().is_none();
    run(&["config", "set", "worker.idle_minutes", "10"], "");
    run(&["uninstall", "--purge", "--yes"], "");
    assert!(is_empty(), "after a configuration alone");
    run(&["config", "set", "worker.idle_minutes", "10"], "");
    // The removal of another state directory leaves the configuration of the usual one.
    let mut other = world.command(&["uninstall", "--purge", "--yes"]);
    other.env("HOME", &fresh).env("RUBBER_DUCK_APP_SUPPORT", fresh.join("other"));
    assert!(other.stdin(std::process::Stdio::null()).status().unwrap().success());
    assert!(fresh.join(".config/quackd/quackd.toml").exists());
    run(&["login", "openai"], "sk-example\n");
    run(&["tool", "bash", "true"], "");
    run(&["tool", "bash", "--detach", "sleep 100"], "");
    run(&["uninstall", "--purge", "--yes"], "");
    assert!(is_empty(), "{:?}", fs::read_dir(&fresh).unwrap().collect::<Vec<_>>());
}

#[test]
fn an_editor_that_fails_leaves_the_configuration_and_no_copy_or_the_users_text() {
    let world = Daemon::absent();
    let temporary = world.home().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let left =
        || fs::read_dir(&temporary).unwrap().flatten().map(|it| it.path()).collect::<Vec<_>>();
    let edit = |editor: &str| {
        let mut command = world.command(&["config", "edit"]);
        command.env("EDITOR", editor).env("TMPDIR", &temporary);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = edit("false");
    assert_eq!((code, left().len()), (Some(1), 0), "{error}");
    assert!(
        error.contains(
            "the editor `false` failed (exit code 1); the configuration was not changed\n"
        )
    );
    // Ctrl-C reaches both programs.
    let (code, error) = edit("kill -INT $PPID $$; sleep 60; true");
    assert_eq!((code, left().len()), (Some(130), 0), "{error}");
    let (code, error) = edit("f() { echo '[worker]' >\"$1\"; exit 7; }; f");
    let kept = left();
    assert_eq!((code, kept.len()), (Some(1), 1), "{error}");
    assert!(
        error.contains(&format!(
            "exit code 7); the configuration was not changed; your text is in {}",
            kept[0].display()
        )),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), "[worker]\n");

    // A value that is refused names the range, and creates no directory.
    let refused = world.quack(&["config", "set", "worker.idle_minutes", "99999"]);
    assert_eq!(refused.code(), Some(2), "{refused:?}");
    assert!(refused.stderr().contains("a whole number from 1 to 1440, not 99999"), "{refused:?}");
    assert!(!world.home().join(".config").exists());
}
