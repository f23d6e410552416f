//! Files of a workspace that make the daemon or the user's programs run code.

use crate::harness::{Daemon, Wire, wait_for, write_program};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const FAKE_PI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_pi.py");

/// Plants every file that a Pi would load from a workspace. The message quotes the daemon's answer.
const PLANT: &str = "mkdir -p .pi/extensions && echo code > .pi/extensions/x.ts && \
    echo '{\"packages\": [\"npm:x\"], \"npmCommand\": [\"./evil\"]}' > .pi/settings.json";

/// A daemon that runs the fake Pi with the given version.
struct World {
    daemon: Daemon,
    repo: PathBuf,
}

impl World {
    #[track_caller]
    fn new(version: &str, variables: &[&str]) -> Self {
        Self::configured(version, variables, "")
    }

    #[track_caller]
    fn configured(version: &str, variables: &[&str], config: &str) -> Self {
        let mut daemon = Daemon::absent();
        let repo = daemon.repo("repo").path().to_owned();
        std::fs::create_dir(daemon.home().join("fake")).unwrap();
        let world = |daemon| Self { daemon, repo };
        let dir = format!("FAKE_PI_DIR={}", daemon.home().join("fake").display());
        std::fs::write(daemon.home().join("fake/version"), version).unwrap();
        let file = daemon.home().join("quackd.toml");
        std::fs::write(&file, config).unwrap();
        let file = format!("QUACKD_CONFIG={}", file.display());
        let binary = format!("RUBBER_DUCK_PI_BINARY={FAKE_PI}");
        let mut args = vec![dir.as_str(), &file, "OPENAI_API_KEY=sk-test"];
        if !variables.iter().any(|variable| variable.starts_with("PATH=")) {
            args.push(&binary);
        }
        args.extend(variables);
        daemon.boot_in(&args);
        world(daemon)
    }

    /// Content of a file that the fake Pi wrote.
    fn told(&self, name: &str) -> String {
        std::fs::read_to_string(self.daemon.home().join("fake").join(name)).unwrap_or_default()
    }
}

fn say(wire: &Wire) -> Value {
    wire.reply("say", json!({"message": "hello", "preferPi": true}))
}

fn script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_program(path, text);
}

#[test]
fn a_pi_loads_nothing_that_a_command_has_left_in_its_workspace() {
    let world = World::new("0.79.0", &[]);
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    session.bash(PLANT);
    wire.request("follow", json!({}));
    let reply = say(&wire);
    assert_eq!(reply["ok"], true, "{reply}");
    wire.events_until("agent_end");
    assert_eq!(world.told("imported"), "");
    // The runtime of Pi reads settings from its start directory; Pi works in the workspace.
    assert_eq!(world.told("started-in"), "/");
    assert_eq!(world.told("asked-in"), "/");
    assert_eq!(world.told("cwd"), world.repo.display().to_string());
}

#[test]
fn attach_starts_no_pi_where_project_settings_are_and_say_does() {
    let world = World::new("1.5.2", &[]);
    std::fs::create_dir_all(world.repo.join(".pi/extensions")).unwrap();
    std::fs::write(world.repo.join(".pi/extensions/x.ts"), "code").unwrap();
    let wire = world.daemon.wire();
    wire.attach(&world.repo);
    wait_for("the daemon to decide", || {
        world.daemon.log().contains("Pi is not started").then_some(())
    });
    assert_eq!(world.told("argv"), "");
    wire.request("follow", json!({}));
    assert_eq!(say(&wire)["ok"], true);
    wire.events_until("agent_end");
    assert_eq!(world.told("imported"), "");
}

#[test]
fn a_pi_that_cannot_be_told_to_ignore_a_workspace_is_not_started() {
    for version in ["0.78.9", "0.55.0", "unknown", ""] {
        let world = World::new(version, &[]);
        let wire = world.daemon.wire();
        wire.attach(&world.repo).bash(PLANT);
        let reply = say(&wire);
        let error = reply["error"].as_str().unwrap_or_default();
        assert!(error.contains("0.79") && error.contains("pi.allow_old"), "{version}: {reply}");
        assert_eq!((world.told("imported"), world.told("argv")), (String::new(), String::new()));
    }
}

/// Creates a package of Pi with this version. Returns its program.
fn package(directory: &Path, version: &str) -> PathBuf {
    let package = directory.join("node_modules/@mariozechner/pi-coding-agent");
    script(&package.join("dist/cli.js"), &std::fs::read_to_string(FAKE_PI).unwrap());
    let manifest = json!({"name": "@mariozechner/pi-coding-agent", "version": version,
        "piConfig": {"name": "pi", "configDir": ".pi"}});
    std::fs::write(package.join("package.json"), manifest.to_string()).unwrap();
    package.join("dist/cli.js")
}

#[test]
fn an_old_pi_answers_by_default_and_loads_nothing_that_a_command_makes_while_it_starts() {
    let directory = tempfile::tempdir().unwrap();
    let program = package(directory.path(), "0.55.0");
    let binary = format!("RUBBER_DUCK_PI_BINARY={}", program.display());
    let world = World::new("0.55.0", &[&binary]);
    std::fs::write(world.daemon.home().join("fake/mode"), "slow-load").unwrap();
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    wait_for("Pi to start", || (!world.told("settings").is_empty()).then_some(()));
    assert_eq!(world.told("settings"), "/proc/quackd-no-project-settings");
    session.bash(PLANT);
    std::fs::write(world.daemon.home().join("fake/load"), "").unwrap();
    wire.request("follow", json!({}));
    let reply = say(&wire);
    assert_eq!(reply["ok"], true, "{reply}");
    wire.events_until("agent_end");
    assert_eq!(world.told("imported"), "");
    assert_eq!(world.told("cwd"), world.repo.display().to_string());
    // The next one would start where project settings are.
    let pid = nix::unistd::Pid::from_raw(world.told("pid").trim().parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    wire.events_until("extension_error");
    let refused = wait_for("the refusal", || {
        let reply = say(&wire);
        let error = reply["error"].as_str().unwrap_or_default().to_owned();
        error.contains("would run code").then_some(error)
    });
    assert!(refused.contains("/.pi") && refused.contains("0.55.0"), "{refused}");
    assert_eq!(world.told("imported"), "");
}

#[test]
fn an_old_pi_that_is_allowed_starts_only_where_no_project_settings_are() {
    let world = World::configured("0.73.1", &[], "[pi]\nallow_old = true\n");
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    wire.request("follow", json!({}));
    assert_eq!(say(&wire)["ok"], true);
    wire.events_until("agent_end");
    let other = world.daemon.repo("other");
    std::os::unix::fs::symlink("/nowhere", other.path().parent().unwrap().join(".pi")).unwrap();
    drop(session);
    let wire = world.daemon.wire();
    wire.attach(other.path());
    let reply = say(&wire);
    let error = reply["error"].as_str().unwrap_or_default();
    assert!(error.contains("/.pi") && error.contains("0.73.1"), "{reply}");
    assert_eq!(world.told("imported"), "");
}

#[test]
fn no_program_of_a_workspace_is_started_through_the_path() {
    // A Pi in another session's workspace, behind a link, or in a relative directory of PATH.
    let home = tempfile::tempdir().unwrap();
    let planted = home.path().join("ws");
    std::fs::create_dir_all(planted.join(".git")).unwrap();
    let evil = format!("#!/bin/sh\necho ran >> {}\n", home.path().join("ran").display());
    for name in ["pi", "python3"] {
        script(&planted.join("node_modules/.bin").join(name), &evil);
    }
    std::os::unix::fs::symlink(&planted, home.path().join("link")).unwrap();
    let system = home.path().join("bin");
    std::fs::create_dir(&system).unwrap();
    std::os::unix::fs::symlink(FAKE_PI, system.join("pi")).unwrap();
    let path = format!(
        "PATH=node_modules/.bin:{0}/link/node_modules/.bin:{0}/bin:{1}",
        home.path().display(),
        std::env::var("PATH").unwrap()
    );
    let world = World::new("1.5.2", &[&path]);
    let wire = world.daemon.wire();
    wire.attach(&planted);
    wire.attach(&world.repo);
    // Otherwise the daemon's own agent runs the turn, since the world has a key.
    wire.request("quack.session_set", json!({"engine": "pi"}));
    wire.request("follow", json!({}));
    let reply = say(&wire);
    assert_eq!(reply["ok"], true, "{reply}");
    wire.events_until("agent_end");
    assert!(!home.path().join("ran").exists(), "a program of a workspace was started");
    assert!(world.told("argv").contains("--no-approve"));
}

#[test]
fn a_pi_that_lies_in_a_workspace_is_refused_by_its_name() {
    let home = tempfile::tempdir().unwrap();
    let pi = home.path().join("tool/pi");
    script(&pi, "#!/bin/sh\nexit 0\n");
    let binary = format!("RUBBER_DUCK_PI_BINARY={}", pi.display());
    let world = World::new("1.5.2", &[&binary]);
    let wire = world.daemon.wire();
    std::fs::create_dir(home.path().join("tool/.git")).unwrap();
    wire.attach(&home.path().join("tool"));
    wire.attach(&world.repo);
    let reply = say(&wire);
    let error = reply["error"].as_str().unwrap_or_default();
    assert!(error.contains("inside the workspace"), "{reply}");
}

#[test]
fn a_pi_whose_own_extensions_are_in_a_workspace_is_not_started() {
    let world = World::new("1.5.2", &[]);
    let extension = world.daemon.repo("extension");
    let agent = world.daemon.home().join(".pi/agent/extensions");
    std::fs::create_dir_all(&agent).unwrap();
    std::os::unix::fs::symlink(extension.path(), agent.join("mine")).unwrap();
    let wire = world.daemon.wire();
    wire.attach(&world.repo);
    wire.request("follow", json!({}));
    assert_eq!(say(&wire)["ok"], true, "no worker has run in it yet");
    wire.events_until("agent_end");
    let wire = world.daemon.wire();
    wire.attach(extension.path());
    let reply = say(&wire);
    let error = reply["error"].as_str().unwrap_or_default();
    assert!(error.contains("it would load") && error.contains("/extensions/mine"), "{reply}");
}

/// Names that an earlier version neither refused nor reported.
const REPORTED: [&str; 16] = [
    "rust-toolchain.toml",
    ".hg/hgrc",
    ".jj/repo/config.toml",
    "lefthook.yaml",
    ".lefthook-local.toml",
    ".config/mise.toml",
    "mise.prod.toml",
    ".windsurf/hooks.json",
    ".kiro/hooks/x",
    ".pi/settings.json",
    "bunfig.toml",
    ".mvn/jvm.config",
    "tools/bazel",
    ".nvim.lua",
    ".pnp.cjs",
    "packages/a/.envrc",
];

#[test]
fn every_name_that_a_program_obeys_is_reported_after_a_command() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    // Tier D does not create names next to a repository.
    std::fs::remove_dir(repo.path().join(".git")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    for name in REPORTED {
        let command = format!("mkdir -p $(dirname {name}) && echo x > {name}");
        let told = session.bash(&command);
        let top = name.split('/').next().unwrap();
        assert!(told.contains("[Sandbox: ") && told.contains(top), "{name}: {told}");
    }
    let ordinary = "echo x > Makefile; echo '{}' > package.json; mkdir -p .github/workflows src/x; \
                    echo x > .github/workflows/ci.yml; echo x > src/x/a.rs";
    assert_eq!(session.bash(ordinary), "\n[Exit code: 0]");
}

#[test]
fn the_audit_finds_a_name_at_any_depth() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("mkdir -p src/a/b/c/d && echo x > src/a/b/c/d/.envrc");
    let at = repo.path().to_string_lossy().into_owned();
    let ran = daemon.quack(&["sandbox", "audit", "-C", &at]);
    assert_eq!(ran.code(), Some(1), "{ran:?}");
    assert!(ran.stdout().contains("src/a/b/c/d/.envrc was made"), "{}", ran.stdout());
}

#[test]
fn file_tools_refuse_what_runs_without_being_started_and_write_the_rest() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    std::fs::remove_dir(repo.path().join(".git")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let write = |name: &str| session.call("write_file", json!({"path": name, "content": "x"}));
    for name in [
        ".pi/extensions/x.ts",
        "sub/.pi/settings.json",
        ".windsurf/hooks.json",
        ".kiro/x",
        ".opencode/x",
        "sub/.hg/hgrc",
        ".jj/repo/config.toml",
        ".nvim.lua",
        ".Rprofile",
    ] {
        let told = write(name);
        assert!(told.starts_with("Error: ") && told.contains("protected"), "{name}: {told}");
        assert!(!repo.path().join(name).exists(), "{name}");
    }
    for name in ["rust-toolchain.toml", ".cargo/config.toml", "lefthook.yml", "AGENTS.md"] {
        let told = write(name);
        assert!(!told.starts_with("Error: "), "{name}: {told}");
    }
}
