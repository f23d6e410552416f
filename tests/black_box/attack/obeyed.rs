//! Files that the daemon runs or obeys outside of the confinement, in a place that a session can write: start files of the
//! login shell, the configuration, the state directory, the launcher, certificates.

use crate::harness::tier;
use crate::harness::{Daemon, untested, write_program};
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Text of everything that reports such a file.
const TOLD: &str = "which sessions may write";

/// A configuration that turns the confinement off.
const EVIL: &str = "[sandbox]\nprofile = \"full-access\"\n[worker]\nidle_minutes = 7\n";

/// A harmless one.
const GOOD: &str = "[log]\nlevel = \"info\"\n";

fn stop(world: &mut Daemon) {
    world.signal(Signal::SIGTERM);
    assert_eq!(world.wait(), Some(0));
}

/// Runs a command in a workspace, which it attaches.
fn bash(world: &Daemon, workspace: &Path, command: &str) -> String {
    world.wire().attach(workspace).bash(command)
}

/// The row of a check of `quack doctor` with a new capture of the login environment.
fn check(world: &Daemon, name: &str) -> String {
    let json = world.quack(&["doctor", "--refresh-environment", "--json"]).json();
    let mut checks = json["checks"].as_array().unwrap().iter();
    checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{json}")).to_string()
}

fn audit(world: &Daemon, workspace: &Path) -> (Option<i32>, String) {
    let audit = world.quack(&["sandbox", "audit", "-C", workspace.to_str().unwrap()]);
    (audit.code(), audit.stdout())
}

/// Daemons with sessions in `ws` and `dot`, of which only `dot` has the files. All tests work with `bash` as login shell.
struct World {
    daemon: Daemon,
    ws: PathBuf,
    dot: PathBuf,
}

fn world() -> World {
    let daemon = Daemon::absent();
    fs::create_dir_all(daemon.app()).unwrap();
    let (ws, dot) = (daemon.repo("ws"), daemon.repo("dot"));
    let (ws, dot) = (ws.path().to_owned(), dot.path().to_owned());
    World { daemon, ws, dot }
}

/// Creates the start files of all login shells with `create`.
fn start_files(world: &World, create: impl Fn(&Path)) {
    for name in [".bash_profile", ".profile", ".zshenv"] {
        create(&world.daemon.home().join(name));
    }
}

#[test]
fn a_start_file_that_a_session_can_write_is_not_run_and_everything_reports_it() {
    for (way, expected) in [
        ("link", TOLD),
        ("chain", TOLD),
        ("second name", "hard link"),
        ("writable", TOLD),
        ("later", TOLD),
    ] {
        let mut world = world();
        let ran = world.daemon.home().join("RAN");
        let rc = world.dot.join("rc");
        fs::write(&rc, "export JAVA_HOME=/mine\n").unwrap();
        start_files(&world, |file| match way {
            "second name" => fs::hard_link(&rc, file).unwrap(),
            "chain" => {
                let home = file.parent().unwrap();
                drop(symlink("../dot", home.join("d")));
                symlink("d/../dot/rc", file).unwrap();
            }
            _ => symlink(&rc, file).unwrap(),
        });
        world.daemon.boot();
        if way == "later" {
            let environment = check(&world.daemon, "environment");
            assert!(environment.contains("\"ok\""), "the start files are harmless: {environment}");
        }
        if way == "writable" {
            let dot = world.dot.to_str().unwrap();
            let at = world.ws.to_str().unwrap();
            let set = world.daemon.quack(&["sandbox", "set", "-C", at, "--writable", dot]);
            assert!(set.stderr().contains(TOLD), "{set:?}");
        } else {
            let attached = world.daemon.wire().request("attach", json!({"path": world.dot}));
            let note = attached["note"].as_str().unwrap_or_default().to_owned();
            assert!(note.contains(expected), "{way}: {attached}");
        }
        let writer = if way == "writable" { &world.ws } else { &world.dot };
        let evil = format!("echo 'touch {}' >>{}", ran.display(), rc.display());
        assert!(bash(&world.daemon, writer, &evil).contains("[Exit code: 0]"), "{way}");
        let environment = check(&world.daemon, "environment");
        assert!(environment.contains("was not started"), "{way}: {environment}");
        assert!(check(&world.daemon, "obeyed").contains(expected), "{way}");
        let (code, text) = audit(&world.daemon, writer);
        assert!(code == Some(1) && text.contains(expected), "{way}: {text}");
        stop(&mut world.daemon);
        world.daemon.boot();
        check(&world.daemon, "environment");
        assert!(!ran.exists(), "{way}: the daemon ran the start file");
    }
}

#[test]
fn a_file_that_a_start_file_runs_can_only_set_variables_and_is_not_seen_in_a_workspace() {
    let mut world = world();
    let home = world.daemon.home();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    let port = tcp.local_addr().unwrap().port();
    let socket = home.join("s.sock");
    let unix = UnixListener::bind(&socket).unwrap();
    unix.set_nonblocking(true).unwrap();
    let (ran, aliases) = (home.join("RAN"), home.join("aliases"));
    let app = world.daemon.app().display().to_string();
    // Each line tries one thing. `python3` is optional.
    let text = format!(
        "export GOPATH=/from-aliases\n\
         touch {ran}; echo x >>{rc}; rm -f {app}/metadata.json; ln -s / {ran}2; chmod 777 {app}\n\
         (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null\n\
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{socket}\")' 2>/dev/null\n\
         kill -9 $(cat {app}/*.pid)\n\
         cat {ws}/secret >/dev/null && export JAVA_HOME=/seen\n",
        ran = ran.display(),
        rc = home.join(".bash_profile").display(),
        socket = socket.display(),
        ws = world.dot.display(),
    );
    fs::write(&aliases, text).unwrap();
    fs::write(world.dot.join("secret"), "x").unwrap();
    fs::write(world.dot.join("more"), "export CARGO_HOME=/planted\n").unwrap();
    let profile =
        format!(". {}; . {}/more\nexport GOROOT=/end\n", aliases.display(), world.dot.display());
    start_files(&world, |file| fs::write(file, &profile).unwrap());
    world.daemon.boot();
    world.daemon.wire().attach(&world.dot);
    let environment = check(&world.daemon, "environment");
    if environment.contains("could not confine") {
        return untested("this kernel cannot confine the login shell");
    }
    assert!(environment.contains("\"ok\""), "{environment}");
    let seen = bash(&world.daemon, &world.ws, "echo $GOPATH-$JAVA_HOME-$CARGO_HOME-$GOROOT");
    assert!(seen.starts_with("/from-aliases---/end\n"), "{seen}");
    assert_eq!(fs::read_to_string(home.join(".bash_profile")).unwrap(), profile);
    assert!(world.daemon.app().join("metadata.json").exists());
    assert_eq!(fs::metadata(world.daemon.app()).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!ran.exists() && !home.join("RAN2").exists());
    assert!(tcp.accept().is_err(), "a connection");
    assert!(unix.accept().is_err(), "a connection to a socket");
}

/// Makes `dot/settings.toml` the configuration by `way`. Returns variables of the daemon.
fn configure(world: &World, way: &str) -> Vec<String> {
    let (file, config) = (world.dot.join("settings.toml"), world.daemon.app().join("quackd.toml"));
    fs::write(&file, GOOD).unwrap();
    match way {
        "variable" => return vec![format!("QUACKD_CONFIG={}", file.display())],
        "second name" | "removed name" => fs::hard_link(&file, &config).unwrap(),
        "chain" => {
            symlink("../dot", world.daemon.home().join("d")).unwrap();
            symlink("../home/d/../dot/settings.toml", &config).unwrap();
        }
        _ => symlink(&file, &config).unwrap(),
    }
    Vec::new()
}

fn boot(world: &mut World, variables: &[String]) {
    let args: Vec<&str> = variables.iter().map(String::as_str).collect();
    world.daemon.boot_in(&args);
}

#[test]
fn a_configuration_that_a_session_can_write_allows_nothing_more_and_everything_reports_it() {
    for (way, expected) in [
        ("link", TOLD),
        ("chain", TOLD),
        ("variable", TOLD),
        ("second name", "hard link"),
        ("removed name", "earlier"),
        ("deleted session", TOLD),
        ("writable", TOLD),
        ("writable no more", TOLD),
    ] {
        let mut world = world();
        let variables = configure(&world, way);
        boot(&mut world, &variables);
        let (at, dot) = (world.ws.to_str().unwrap(), world.dot.to_str().unwrap());
        let writer = if way.starts_with("writable") { &world.ws } else { &world.dot };
        if way.starts_with("writable") {
            let set = world.daemon.quack(&["sandbox", "set", "-C", at, "--writable", dot]);
            assert!(set.stderr().contains(TOLD), "{way}: {set:?}");
        }
        let settings = world.dot.join("settings.toml").display().to_string();
        let then = if way == "removed name" { format!("rm {settings}") } else { "true".to_owned() };
        let evil = format!("printf '{}' >{settings} && {then}", EVIL.replace('\n', "\\n"));
        let wrote = bash(&world.daemon, writer, &evil);
        assert!(wrote.contains("[Exit code: 0]"), "{way}: {wrote}");
        if way != "removed name" {
            let (code, text) = audit(&world.daemon, writer);
            assert!(code == Some(1) && text.contains(expected), "{way}: {text}");
        }
        match way {
            "deleted session" => drop(world.daemon.quack(&["delete", "dot", "--force"]).ok()),
            "writable no more" => {
                drop(world.daemon.quack(&["sandbox", "set", "-C", at, "--reset"]).ok());
            }
            _ => {}
        }
        stop(&mut world.daemon);
        boot(&mut world, &variables);
        let status = bash(&world.daemon, &world.ws, "grep Seccomp: /proc/self/status");
        // Commands of macOS cannot read /proc.
        let sign = if tier::is_macos() { "Permission denied" } else { "Seccomp:\t2" };
        assert!(status.contains(sign), "{way}: {status}");
        let config = check(&world.daemon, "config");
        assert!(config.contains(expected) && config.contains("sandbox.profile"), "{way}: {config}");
        let mut show = world.daemon.command(&["config", "show", "--origin"]);
        show.envs(variables.iter().filter_map(|variable| variable.split_once('=')));
        let shown = String::from_utf8(show.output().unwrap().stdout).unwrap();
        assert!(
            shown.contains("settings.toml:2 is not obeyed")
                || shown.contains("quackd.toml:2 is not obeyed"),
            "{way}: {shown}"
        );
        // A key that allows nothing stays.
        assert!(shown.contains("worker.idle_minutes = 7"), "{way}: {shown}");
    }
}

#[test]
fn a_copy_of_the_configuration_is_obeyed_again() {
    let mut world = world();
    let config = world.daemon.app().join("quackd.toml");
    configure(&world, "link");
    world.daemon.boot();
    bash(&world.daemon, &world.dot, "true");
    stop(&mut world.daemon);
    fs::remove_file(&config).unwrap();
    fs::write(&config, "[sandbox]\nnetwork = \"on\"\n").unwrap();
    world.daemon.boot();
    assert!(check(&world.daemon, "config").contains("\"ok\""));
    let shown = world.daemon.quack(&["config", "show", "--origin"]).ok();
    assert!(shown.contains("quackd.toml:2") && !shown.contains("not obeyed"), "{shown}");
}

#[test]
fn a_directory_on_the_way_to_the_state_directory_is_refused_as_a_workspace() {
    for way in ["inside", "link"] {
        let mut world = world();
        let (app, dot) = (world.daemon.app(), world.dot.clone());
        fs::remove_dir(&app).unwrap();
        let real = world.daemon.home().join("real");
        let place = if way == "inside" { dot.join("state") } else { dot.join("l/state") };
        if way == "link" {
            fs::create_dir_all(real.join("state")).unwrap();
            symlink(&real, dot.join("l")).unwrap();
        } else {
            fs::create_dir_all(&place).unwrap();
        }
        symlink(&place, &app).unwrap();
        world.daemon.boot();
        let wire = world.daemon.wire();
        let refused = wire.refused("attach", json!({"path": dot}));
        assert!(refused.contains("state directory"), "{way}: {refused}");
        let at = world.ws.to_str().unwrap();
        let set =
            world.daemon.quack(&["sandbox", "set", "-C", at, "--writable", dot.to_str().unwrap()]);
        assert!(set.code() != Some(0) && set.stderr().contains("state directory"), "{set:?}");
    }
}

#[test]
fn a_launcher_that_a_session_can_write_starts_no_worker() {
    let mut world = world();
    let launcher = world.dot.join("launch");
    write_program(&launcher, "#!/bin/sh\nexec \"$@\"\n");
    symlink(&launcher, world.daemon.home().join("launch")).unwrap();
    let at = world.daemon.home().join("launch").display().to_string();
    let config = world.daemon.app().join("quackd.toml");
    fs::write(&config, format!("[worker]\nlauncher = [\"sh\", \"{at}\"]\n")).unwrap();
    world.daemon.boot();
    assert!(bash(&world.daemon, &world.ws, "echo started").contains("started\n"));
    let attached = world.daemon.wire().request("attach", json!({"path": world.dot}));
    assert!(attached["note"].as_str().unwrap().contains("no worker starts"), "{attached}");
    let refused = bash(&world.daemon, &world.dot, "echo started");
    assert!(refused.contains("worker.launcher is not run") && refused.contains(TOLD), "{refused}");
}

#[test]
fn certificates_that_a_session_can_write_are_not_read() {
    let mut world = world();
    let file = world.dot.join("ca.pem");
    fs::write(&file, "").unwrap();
    boot(&mut world, &[format!("SSL_CERT_FILE={}", file.display())]);
    let wire = world.daemon.wire();
    let session = wire.attach(&world.dot);
    let text = session.call("web_search", json!({"query": "ducks"}));
    assert!(text.contains("sends no encrypted request") && text.contains(TOLD), "{text}");
}
