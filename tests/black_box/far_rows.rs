//! Sessions on other machines: rows of the user with `create` and `destroy`, references, refusals, and the end of a worker
//! whose link is lost. The clients of the engines are shells.

use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// The program under test, which is also that of the far side.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// A row whose lists are scripts. The arguments of each are the world of the test and the given words.
fn row(name: &str, world: &Path, lists: &[(&str, &str, &[&str])]) -> String {
    let mut row = format!("[engines.{name}]\nprogram = {QUACK:?}\ntarget = \"optional\"\n");
    for (key, script, words) in lists {
        let mut list = vec![json!("bash"), json!("-c"), json!(script), json!("bash"), json!(world)];
        list.extend(words.iter().map(|word| json!(word)));
        row.push_str(&format!("{key} = {}\n", Value::from(list)));
    }
    row
}

/// Like podman: a container is a directory, which lives as long as its session.
fn container(world: &Path) -> String {
    let create = "echo create $2 $3 >> $1/log; mkdir $1/$2; echo pulling; echo $2";
    let start = "cd $1/$2 || exit 125; shift 2; \"$@\"; exit $?";
    let destroy = "echo destroy $2 >> $1/log; rmdir $1/$2";
    row(
        "box",
        world,
        &[
            ("create", create, &["quackd-{session}", "{target}"]),
            ("start", start, &["quackd-{session}", "{command}"]),
            ("destroy", destroy, &["quackd-{session}"]),
        ],
    )
}

/// Like a claim of agent-sandbox: the name of the pod is known when the pod is ready.
fn pod(world: &Path) -> String {
    let create = "mkdir $1/$2 && touch $1/$2/pod-7 && cd $1/$2 && ls";
    let start = "cd $1/quackd-$2 && test -e $3 || exit 1; shift 3; \"$@\"; exit $?";
    let destroy = "rm -r $1/$2";
    row(
        "pod",
        world,
        &[
            ("create", create, &["quackd-{session}"]),
            ("start", start, &["{session}", "{created}", "{command}"]),
            ("destroy", destroy, &["quackd-{session}"]),
        ],
    )
}

/// A daemon with these rows, whose scripts work in its home.
#[track_caller]
fn daemon_with(rows: &[fn(&Path) -> String]) -> Daemon {
    let mut daemon = Daemon::absent();
    let config: String = rows.iter().map(|row| row(&daemon.home())).collect();
    daemon.configure(config);
    daemon.boot();
    daemon
}

/// Names in the home that begin like those of the rows.
fn created(daemon: &Daemon) -> Vec<String> {
    let entries = fs::read_dir(daemon.home()).expect("the home");
    let names = entries.map(|entry| entry.expect("an entry").file_name().display().to_string());
    names.filter(|name| name.starts_with("quackd-")).collect()
}

#[test]
fn a_container_lives_as_long_as_its_session_also_over_a_crash_of_the_daemon() {
    let mut daemon = daemon_with(&[container]);
    let repo = daemon.repo("app");
    let path = repo.path().display().to_string();
    let made = daemon.quack(&["new", "--on", "box:debian:12", &path, "--name", "one", "--json"]);
    let id = made.json()["session"]["id"].as_str().expect("an id").to_owned();
    let name = format!("quackd-{id}");
    assert_eq!(created(&daemon), [name.as_str()]);

    let bash =
        |daemon: &Daemon| daemon.quack(&["tool", "--session", "app/one", "bash", "pwd"]).ok();
    assert!(bash(&daemon).contains(&path));
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    daemon.boot();
    assert!(bash(&daemon).contains(&path));
    let log = || fs::read_to_string(daemon.home().join("log")).expect("the log");
    assert_eq!(log(), format!("create {name} debian:12\n"));

    let deleted = daemon.quack(&["delete", "app/one", "--yes"]);
    assert_eq!((deleted.code(), deleted.stderr().as_str()), (Some(0), ""), "{deleted:?}");
    assert_eq!(log(), format!("create {name} debian:12\ndestroy {name}\n"));
    assert!(created(&daemon).is_empty());

    let engines = daemon.quack(&["engines"]).ok();
    assert!(engines.contains("creates for each session"), "{engines}");
    assert_eq!(daemon.quack(&["engines", "test", "box:x"]).code(), Some(1));
}

#[test]
fn a_pod_is_entered_by_the_name_that_create_printed_last() {
    let daemon = daemon_with(&[pod]);
    let repo = daemon.repo("app");
    let path = repo.path().display().to_string();
    daemon.quack(&["new", "--on", "pod", &path]).ok();
    let text = daemon.quack(&["tool", "--session", "app", "bash", "echo $((6 * 7))"]).ok();
    assert!(text.contains("42"), "{text}");
    daemon.quack(&["delete", "app", "--yes"]).ok();
    assert!(created(&daemon).is_empty());
}

#[test]
fn a_copy_is_sent_into_what_was_created_and_both_end_with_the_session() {
    let keeping = |world: &Path| format!("{}keeps_files = true\n", pod(world));
    let daemon = daemon_with(&[keeping]);
    let repo = daemon.repo("project");
    repo.write("a.txt", "one\n");
    let path = repo.path().display().to_string();
    daemon.quack(&["new", "--on", "pod", "--send", "--name", "sent", &path]).ok();
    assert_eq!(created(&daemon).len(), 1);
    daemon.quack(&["tool", "--session", "project/sent", "bash", "echo two > a.txt"]).ok();
    daemon.quack(&["apply", "--session", "project/sent"]).ok();
    assert_eq!(repo.read("a.txt"), "two\n");

    let deleted = daemon.quack(&["delete", "project/sent", "--yes"]);
    assert_eq!((deleted.code(), deleted.stderr().as_str()), (Some(0), ""), "{deleted:?}");
    assert!(created(&daemon).is_empty());
    let copies = daemon.home().join(".local/share/quackd-sent");
    assert_eq!(fs::read_dir(copies).expect("the directory of copies").count(), 0);
}

#[test]
fn what_cannot_be_created_makes_no_session_and_is_destroyed() {
    let failing = |world: &Path| {
        let create = "mkdir $1/$2; echo no quota for ducks >&2; exit 3";
        let names = ["quackd-{session}"];
        let start: (&str, &str, &[&str]) = ("start", "shift; \"$@\"", &["{command}"]);
        let destroy: (&str, &str, &[&str]) = ("destroy", "rmdir $1/$2", &names);
        let bad = "mkdir $1/$2; echo two words";
        row("full", world, &[("create", create, &names), start, destroy])
            + &row("odd", world, &[("create", bad, &names), start, destroy])
    };
    let daemon = daemon_with(&[failing]);
    for (engine, words) in [("full", "exit code 3: no quota for ducks"), ("odd", "must be a name")]
    {
        let refused = daemon.quack(&["new", "--on", engine, "/w"]);
        let text = refused.stderr();
        assert_eq!(refused.code(), Some(1), "{text}");
        assert!(text.contains(words) && text.lines().count() == 1, "{text}");
        assert!(created(&daemon).is_empty());
    }
    let wire = daemon.wire();
    assert_eq!(wire.request("workspaces", json!({}))["workspaces"], json!([]));
}

#[test]
fn what_cannot_be_destroyed_is_named_with_the_command() {
    let stubborn = |world: &Path| {
        row(
            "stub",
            world,
            &[
                ("create", "true", &[]),
                ("start", "shift; \"$@\"", &["{command}"]),
                ("destroy", "echo it holds on >&2; exit 1", &["quackd-{session}"]),
            ],
        )
    };
    let daemon = daemon_with(&[stubborn]);
    let repo = daemon.repo("app");
    let path = repo.path().display().to_string();
    let made = daemon.quack(&["new", "--on", "stub", &path, "--json"]).json();
    let id = made["session"]["id"].as_str().expect("an id");
    let deleted = daemon.quack(&["delete", "app", "--yes"]);
    let text = deleted.stderr();
    assert_eq!(deleted.code(), Some(0), "{text}");
    assert!(text.contains("it holds on") && text.contains("Run it by hand: bash -c"), "{text}");
    assert!(text.contains(&format!("quackd-{id}")), "{text}");
    daemon.wait_for_log("destroy of an engine failed");
}

#[test]
fn a_session_for_which_nothing_was_created_says_how_to_make_one() {
    let daemon = daemon_with(&[container]);
    let wire = daemon.wire();
    let data = wire.request("attach", json!({"path": "box:x:/w"}));
    let id = data["session"]["id"].as_str().expect("an id");
    let call = json!({"sessionId": id, "tool": "bash", "arguments": "echo answered"});
    let text = wire.request("quack.tool", call)["text"].to_string();
    assert!(text.contains("make one with quack new") && !text.contains("answered"), "{text}");
}

/// A row that runs the worker as a child of its client.
fn near(world: &Path) -> String {
    row("near", world, &[("start", "shift; \"$@\"; exit $?", &["{command}"])])
}

#[test]
fn an_unknown_engine_is_a_usage_error_that_names_the_known_ones() {
    let daemon = daemon_with(&[near]);
    for on in ["nosuch", "nosuch:x", "No.Such:x"] {
        let refused = daemon.quack(&["new", "--on", on, "/w"]);
        let text = refused.stderr();
        assert_eq!(refused.code(), Some(2), "{on}: {text}");
        let engines = "is not an engine; engines are near, ssh, slurm, podman, kubectl";
        assert!(text.contains(engines) && text.lines().count() == 1, "{text}");
        assert_eq!(text.matches("not an engine").count(), 1, "{text}");
    }
}

#[test]
fn sessions_of_one_far_directory_have_short_labels_and_their_shown_workspace_means_them() {
    let daemon = daemon_with(&[near]);
    let repo = daemon.repo("app");
    let path = repo.path().display().to_string();
    let make =
        |on: &str| daemon.quack(&["new", "--on", on, &path, "--json"]).json()["label"].clone();
    assert_eq!(["near:b1", "near:b1", "near:b1"].map(make), ["app", "app/2", "app/3"]);
    make("near:b2");
    let shown = format!("b2:{path}");
    let text = daemon.quack(&["tool", "--session", &shown, "bash", "echo $((6 * 7))"]).ok();
    assert!(text.contains("42"), "{text}");
}

#[test]
fn paths_and_remedies_of_a_far_session_are_those_of_its_machine() {
    let daemon = daemon_with(&[near]);
    let repo = daemon.repo("app");
    let path = repo.path().display().to_string();
    daemon.quack(&["new", "--on", "near:b1", &path]).ok();
    let far = ["--session", "app"];
    let explained = daemon.quack(&[&["sandbox", "explain", "no/such.rs"][..], &far].concat());
    assert!(explained.stdout().contains(&format!("{path}/no/such.rs")), "{explained:?}");
    for option in ["--hide", "--writable"] {
        let set = daemon.quack(&[&["sandbox", "set", option, "/no/such/dir"][..], &far].concat());
        assert_eq!(set.code(), Some(1));
        assert!(set.stderr().contains("on another machine"), "{set:?}");
    }
    let report = daemon.quack(&[&["sandbox", "explain"][..], &far].concat()).stdout();
    assert!(!report.contains("--writable") && !report.contains("--hide"), "{report}");
    let outside = daemon.home().join("some/where/x");
    let write = format!("write_file path={} content=x", outside.display());
    let mut words = vec!["tool"];
    words.extend(far);
    words.extend(write.split(' '));
    let refused = daemon.quack(&words);
    let text = refused.stdout() + &refused.stderr();
    assert!(!text.contains("--writable") && !outside.exists(), "{text}");
}

/// A machine that starts far workers, which do not end with the client of the engine. The first line of a connection has
/// the command. The far workers are sent to the receiver.
#[expect(clippy::disallowed_methods, reason = "as another machine does it")]
fn machine(home: &Path) -> (u16, mpsc::Receiver<Child>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let (send, started) = mpsc::channel();
    let home = home.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            let mut line = String::new();
            // One byte at a time: the worker reads what follows the line.
            let reader = BufReader::with_capacity(1, stream.try_clone().expect("a copy"));
            let mut reader = reader;
            reader.read_line(&mut line).expect("a command");
            let words: Vec<_> = line.split_whitespace().collect();
            let output = OwnedFd::from(stream.try_clone().expect("a copy"));
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).env_clear().env("HOME", &home).env("PATH", "/usr/bin:/bin");
            command.stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::from(output));
            let child = command.stderr(Stdio::null()).spawn().expect("a far worker");
            if send.send(child).is_err() {
                return;
            }
        }
    });
    (port, started)
}

#[test]
fn a_session_that_is_deleted_while_its_link_is_interrupted_leaves_no_worker() {
    let mut daemon = Daemon::absent();
    let (port, started) = machine(&daemon.home());
    let connect = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; shift; printf '%s\\n' \"$*\" >&3; cat <&3 & exec cat >&3"
    );
    // The attempts to resume hang until the gate is open.
    let resume = format!("echo x >> $1/attempts; test -e $1/gate || exec sleep 600; {connect}");
    let rows = row(
        "tcp",
        &daemon.home(),
        &[("start", &connect, &["{command}"]), ("resume", &resume, &["{command}"])],
    );
    daemon.configure(format!("{rows}[far]\nresume_grace_s = 3600\n"));
    daemon.boot();
    let repo = daemon.repo("app");
    let path = repo.path().display().to_string();
    daemon.quack(&["new", "--on", "tcp", &path]).ok();
    let text = daemon.quack(&["tool", "--session", "app", "bash", "echo $((6 * 7))"]).ok();
    assert!(text.contains("42"), "{text}");
    let mut far = started.recv().expect("a far worker");

    let link = daemon.descendants().into_iter().find(|process| process.name == "quack-link");
    let link = link.expect("a link").pid;
    let client = daemon.descendants().into_iter().find(|process| process.parent == link);
    let client = nix::unistd::Pid::from_raw(client.expect("a client").pid);
    nix::sys::signal::kill(client, nix::sys::signal::Signal::SIGKILL).expect("kill the client");
    let attempts = daemon.home().join("attempts");
    wait_for("an attempt to resume", || attempts.exists().then_some(()));
    assert_eq!(far.try_wait().expect("its state"), None, "it waits for the link");

    fs::write(daemon.home().join("gate"), "").expect("open the gate");
    daemon.quack(&["delete", "app", "--yes", "--force"]).ok();
    wait_for("the far worker to end", || far.try_wait().expect("its state"));
    let mut resumed = started.recv().expect("the last link");
    wait_for("the last link to end", || resumed.try_wait().expect("its state"));
}
