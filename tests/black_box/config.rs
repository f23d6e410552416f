//! The configuration as the user reads it, and subcommands that print for other programs. They
//! neither need nor start a daemon.

use crate::harness::Daemon;
use serde_json::json;
use std::process::Stdio;

/// A world with a configuration file and no daemon.
fn world(content: &str) -> Daemon {
    let world = Daemon::absent();
    world.configure(content);
    world
}

/// Runs a subcommand with one more variable.
fn with(
    world: &Daemon,
    variable: &str,
    value: &str,
    args: &[&str],
) -> (Option<i32>, String, String) {
    let output = world.command(args).env(variable, value).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn config_show_says_every_value_and_where_it_comes_from() {
    let world = world("[worker]\nmax_live = 7\n\n[log]\nlevel = \"warn\"\n");
    let file = world.app().join("quackd.toml");
    let shown = world.quack(&["config", "show"]).ok();
    assert!(shown.contains("worker.max_live = 7\n") && !shown.contains('#'), "{shown}");
    let (code, shown, _) = with(&world, "QUACKD_LOG", "debug", &["config", "show", "--origin"]);
    assert_eq!(code, Some(0));
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert!(line("worker.max_live").ends_with(&format!("# {}:2", file.display())), "{shown}");
    assert!(line("worker.idle_minutes").ends_with("# default"), "{shown}");
    assert!(line("log.level = \"debug\"").ends_with("# QUACKD_LOG"), "{shown}");
    assert!(shown.parse::<toml::Table>().is_ok(), "{shown}");
    let document = world.quack(&["config", "show", "--json"]).json();
    assert_eq!(
        document["worker.max_live"],
        json!({"value": 7, "origin": format!("{}:2", file.display())})
    );
    assert_eq!(document["tools.env"], json!({"value": [], "origin": "default"}));
    assert_eq!(document.as_object().unwrap().len(), shown.lines().count());
    assert!(!world.socket().exists());
}

#[test]
fn what_config_show_prints_is_a_configuration_file() {
    let world = world("worker.launcher = ['nice', '-n', '5 \"x\"']\ntools.default_timeout_s = 9\n");
    let shown = world.quack(&["config", "show"]).ok();
    let copy = world.home().join("copy.toml");
    std::fs::write(&copy, &shown).unwrap();
    let copy = copy.to_str().unwrap();
    let (code, again, _) = with(&world, "QUACKD_CONFIG", copy, &["config", "show"]);
    assert_eq!((code, again), (Some(0), shown));
}

#[test]
fn a_file_that_cannot_be_used_is_told_with_its_place_and_exits_1() {
    let world = world("\n[worker]\nidle_minuts = 5\n");
    let file = world.app().join("quackd.toml");
    for args in [&["config", "show"][..], &["config", "show", "--json"]] {
        let run = world.quack(args);
        assert_eq!(run.code(), Some(1), "{run:?}");
        if args.contains(&"--json") {
            assert_eq!(run.json()["error"]["code"], "failed");
        } else {
            assert_eq!(run.stdout(), "");
        }
        let expected = "3: unknown key `worker.idle_minuts`; did you mean `worker.idle_minutes`?";
        assert_eq!(run.stderr(), format!("error: {}:{expected}\n", file.display()));
    }
    // With an invalid file the user needs its path.
    assert_eq!(world.quack(&["config", "path"]).ok(), format!("{}\n", file.display()));

    std::fs::write(&file, "").unwrap();
    let (code, _, stderr) = with(&world, "QUACKD_LOG", "loud", &["config", "show"]);
    assert!(code == Some(1) && stderr.starts_with("error: QUACKD_LOG must be one of"), "{stderr}");
    let (code, _, stderr) = with(&world, "QUACKD_CONFIG", "/no/such.toml", &["config", "show"]);
    assert!(code == Some(1) && stderr.contains("/no/such.toml: No such file"), "{stderr}");
    // The daemon has another working directory, so it would find another file or none.
    let (code, _, stderr) = with(&world, "QUACKD_CONFIG", "quackd.toml", &["config", "path"]);
    assert!(code == Some(1) && stderr.contains("must be an absolute path"), "{stderr}");
    let fifo = world.home().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = fifo.to_str().unwrap();
    let (code, _, stderr) = with(&world, "QUACKD_CONFIG", fifo, &["config", "show"]);
    assert!(code == Some(1) && stderr.contains("not a regular file"), "{stderr}");
}

#[test]
fn config_path_is_of_the_user_or_the_one_that_is_named() {
    let world = Daemon::absent();
    let file = world.home().join(".config/quackd/quackd.toml");
    assert_eq!(world.quack(&["config", "path"]).ok(), format!("{}\n", file.display()));
    assert_eq!(
        world.quack(&["config", "path", "--json"]).json(),
        json!({"path": file, "exists": false, "named": false})
    );
    let (_, shown, _) = with(&world, "QUACKD_CONFIG", "/etc/duck.toml", &["config", "path"]);
    assert_eq!(shown, "/etc/duck.toml\n");
    assert!(!world.app().exists(), "asking makes no directory");
    assert_eq!(world.quack(&["config"]).code(), Some(2));
    assert_eq!(world.quack(&["config", "set"]).code(), Some(2));
}

#[test]
fn completions_are_scripts_of_four_shells() {
    let world = Daemon::absent();
    for shell in ["bash", "zsh", "fish", "elvish"] {
        let script = world.quack(&["completions", shell]).ok();
        assert!(script.contains("quack") && script.ends_with('\n'), "{shell}: {script}");
        let document = world.quack(&["completions", shell, "--json"]).json();
        assert_eq!(document["script"], script);
    }
    assert_eq!(world.quack(&["completions", "powershell"]).code(), Some(2));
}

#[test]
fn man_is_a_page_or_a_page_for_each_verb() {
    let world = Daemon::absent();
    let page = world.quack(&["man"]).ok();
    assert!(page.contains(".TH quack 1") && page.contains("quack\\-config(1)"), "{page}");
    assert!(!page.contains("worker(1)"), "{page}");
    assert_eq!(world.quack(&["man", "--json"]).json()["page"], page);
    let dir = world.home().join("share/man1");
    let shown = world.quack(&["man", dir.to_str().unwrap(), "--json"]).json();
    let mut written: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    written.sort();
    assert_eq!(shown, json!({"directory": dir, "pages": written}));
    for name in ["quack.1", "quack-ps.1", "quack-config-show.1", "quack-man.1"] {
        assert!(written.iter().any(|page| page == name), "{name}: {written:?}");
    }
    let again = world.quack(&["man", dir.to_str().unwrap()]).ok();
    assert_eq!(again, format!("Wrote {} pages to {}.\n", written.len(), dir.display()));
    let refused = world.quack(&["man", "/dev/null/x"]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    assert!(refused.stderr().contains("cannot write the pages into /dev/null/x"), "{refused:?}");
}
