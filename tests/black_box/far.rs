//! Sessions whose worker runs elsewhere. The engine is a row of the configuration whose client is a shell on this machine,
//! so everything but the other machine is real. `tests/engines/run.py` has real engines.

use crate::harness::{Daemon, Process, Session, Wire, descendants_of, is_alive, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// The program under test, which is also that of the far side.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// A client that stays the parent of the far worker, like the server of an engine.
const CLIENT: &str = "\"$@\"; exit $?";

/// The handshake of a far side that is a script. It waits for the answer.
const READY: &str =
    "echo 'quackd: ready {\"proto\":1,\"version\":\"VERSION\",\"received\":0}'; read -r line; ";

/// A row of the configuration whose client is this script. Its arguments are the command of the far worker.
fn row(name: &str, script: &str, more: &str) -> String {
    let start = json!(["bash", "-c", script, "bash", "{command}"]);
    format!("[engines.{name}]\nstart = {start}\nprogram = {QUACK:?}\n{more}\n")
}

/// A row that can be reached with any target.
fn near() -> String {
    row("near", CLIENT, "target = \"optional\"")
}

#[track_caller]
fn far_session<'a>(wire: &'a Wire, path: &str) -> Session<'a> {
    let data = wire.request("quack.session_new", json!({"path": path}));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    Session {
        wire,
        id: text(&data["session"]["id"]),
        name: text(&data["session"]["name"]),
        path: text(&data["workspace"]["path"]),
    }
}

/// Text of a workspace at this place.
fn at(place: &str, path: &Path) -> String {
    format!("near:{place}:{}", path.display())
}

/// The only process with this name below the daemon.
#[track_caller]
fn only(daemon: &Daemon, name: &str) -> Process {
    wait_for(&format!("one {name}"), || {
        let mut found = daemon.descendants().into_iter().filter(|process| process.name == name);
        let first = found.next();
        first.filter(|_| found.next().is_none())
    })
}

/// The client of the engine: the child of the only link process.
#[track_caller]
fn client(daemon: &Daemon) -> Process {
    let link = only(daemon, "quack-link");
    wait_for("the client of the engine", || {
        descendants_of(link.pid).into_iter().find(|process| process.parent == link.pid)
    })
}

fn kill_9(process: &Process) {
    kill(Pid::from_raw(process.pid), Signal::SIGKILL).expect("kill a process");
}

#[track_caller]
fn wait_until_gone(processes: &[Process]) {
    wait_for("the processes of the far side to end", || {
        (!processes.iter().any(is_alive)).then_some(())
    });
}

/// Fails unless this is one error on one line, safe to print.
#[track_caller]
fn assert_one_error(text: &str) {
    assert!(text.starts_with("Error: ") && text.matches("Error: ").count() == 1, "{text}");
    assert!(text.len() < 2_000 && !text.contains(char::is_control), "{text:?}");
}

#[test]
fn a_far_session_works_like_another_one_and_ps_names_its_place() {
    let daemon = Daemon::start_with(near());
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = far_session(&wire, &at("build1", repo.path()));
    assert_eq!(session.path, at("build1", repo.path()));
    let here = format!("{}\n42\n\n[Exit code: 0]", repo.path().display());
    assert_eq!(session.bash("pwd; echo $((6 * 7))"), here);
    assert_eq!(session.call("read_file", json!("README.md")), "# A repository\n");
    session.call("write_file", json!({"path": "new.txt", "content": "quack\n"}));
    assert_eq!(repo.read("new.txt"), "quack\n");
    assert!(session.call("grep_search", json!({"pattern": "needle"})).contains("src/main.rs"));

    let worker = session.worker();
    assert_eq!((&worker["place"], worker.get("pid")), (&json!("build1"), None), "{worker}");
    let local = wire.attach(daemon.repo("b").path());
    local.bash("true");
    // Without a control group of the daemon.
    let confined = ["A", "B"].map(Value::from);
    let here = local.worker()["tier"].clone();
    let tier = &worker["tier"];
    assert!(*tier == here || [&here, tier].iter().all(|tier| confined.contains(tier)), "{tier}");
    assert_eq!(local.worker().get("place"), None);
    let shown = format!("build1:{}", repo.path().display());
    for verb in ["ps", "sessions"] {
        let text = daemon.quack(&[verb]).ok();
        assert!(text.contains(&shown), "{verb}: {text}");
    }
}

#[test]
fn nothing_of_the_daemons_environment_reaches_the_far_side() {
    let daemon = Daemon::start_with(near());
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = far_session(&wire, &at("build1", repo.path()));
    assert_eq!(session.bash("echo $EXA_API_KEY$RUBBER_DUCK_APP_SUPPORT"), "\n\n[Exit code: 0]");
    let below = descendants_of(only(&daemon, "quack-link").pid);
    assert!(3 <= below.len(), "client, far side and worker: {below:?}");
    for process in below {
        let file = format!("/proc/{}/environ", process.pid);
        let environment = std::fs::read(file).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        assert!(!environment.contains("secret-of-the-daemon"), "{process:?}");
    }
}

#[test]
fn a_far_worker_cannot_write_outside_and_has_no_network() {
    let daemon = Daemon::start_with(near());
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = far_session(&wire, &at("build1", repo.path()));
    let outside = daemon.home().join("outside");
    let text = session.bash(&format!(
        "echo x > '{}'; cat '{}/quackd.toml'; exec 3<>/dev/tcp/127.0.0.1/1 && echo connected",
        outside.display(),
        daemon.app().display()
    ));
    assert!(
        !outside.exists() && !text.contains("[engines") && !text.contains("connected"),
        "{text}"
    );
    let write = json!({"path": outside, "content": "x"});
    assert_one_error(&session.call("write_file", write));
    assert!(!outside.exists());
}

#[test]
fn a_killed_client_of_an_engine_fails_its_call_once_and_the_next_call_works() {
    let daemon = Daemon::start_with(near());
    let (repo, other) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let session = far_session(&wire, &at("build1", repo.path()));
    let local = wire.attach(other.path());
    let undisturbed = local.begin("bash", json!(daemon.gated("end", "echo undisturbed")));
    let slow = session.begin("bash", json!("echo run >> marker; setsid sleep 61 & sleep 60"));
    wait_for("the call to run", || (repo.read("marker") == "run\n").then_some(()));
    let link = only(&daemon, "quack-link");
    let below: Vec<Process> = descendants_of(link.pid).into_iter().collect();
    kill_9(&client(&daemon));
    let text = slow.text();
    assert!(text.starts_with("Error: link to build1 lost during bash ("), "{text}");
    assert!(text.contains("it was not retried"), "{text}");
    assert_one_error(&text);
    wait_until_gone(&below);

    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    assert_eq!(repo.read("marker"), "run\n", "the call ran once");
    daemon.open_gate("end");
    assert_eq!(undisturbed.text(), "undisturbed\n\n[Exit code: 0]");
}

#[test]
fn a_killed_far_worker_is_reported_like_a_local_one() {
    let daemon = Daemon::start_with(near());
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = far_session(&wire, &at("build1", repo.path()));
    let slow = session.begin("bash", json!("echo run >> marker; sleep 60"));
    wait_for("the call to run", || (repo.read("marker") == "run\n").then_some(()));
    kill_9(&only(&daemon, "quack-worker"));
    let died = "Error: Worker died during bash (signal 9). It may have run; it was not retried.";
    assert_eq!(slow.text(), died);
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
}

#[test]
fn a_killed_link_process_or_supervisor_leaves_nothing_on_the_far_side() {
    let mut daemon = Daemon::start_with(near());
    let repo = daemon.repo("a");
    let path = at("build1", repo.path());
    {
        let wire = daemon.wire();
        let session = far_session(&wire, &path);
        let slow = session.begin("bash", json!("echo run >> marker; sleep 60"));
        wait_for("the call to run", || (repo.read("marker") == "run\n").then_some(()));
        let link = only(&daemon, "quack-link");
        let below: Vec<Process> = descendants_of(link.pid).into_iter().collect();
        kill_9(&link);
        assert_one_error(&slow.text());
        wait_until_gone(&below);
        assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    }
    let below: Vec<Process> = daemon.descendants().into_iter().collect();
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    wait_until_gone(&below);
    daemon.boot();
    let wire = daemon.wire();
    let workspaces = wire.request("workspaces", json!({}));
    assert_eq!(workspaces["workspaces"][0]["path"], path, "{workspaces}");
    assert_eq!(far_session(&wire, &path).bash("echo back"), "back\n\n[Exit code: 0]");
}

#[test]
fn malformed_and_unknown_places_are_refused() {
    let daemon = Daemon::start_with(near());
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let path = repo.path().display();
    for text in [
        format!("near:-oProxyCommand=x:{path}"),
        format!("near:a b:{path}"),
        format!("near:a\nb:{path}"),
        format!("near:a\u{1b}[2J:{path}"),
        format!("near:{}:{path}", "x".repeat(300)),
        format!("Near:a:{path}"),
        "near:build1".to_owned(),
        "near:build1:relative".to_owned(),
        "near:build1:/w/../etc".to_owned(),
        format!("near:build1:/{}", "x".repeat(5_000)),
    ] {
        let error = wire.refused("quack.session_new", json!({"path": text}));
        assert!(error.len() < 1_000 && !error.contains(char::is_control), "{error:?}");
    }
    let unknown = json!({"path": format!("nosuch:build1:{path}")});
    let error = wire.refused("quack.session_new", unknown);
    assert!(error.contains("nosuch"), "{error}");
    assert_eq!(wire.request("workspaces", json!({}))["workspaces"], json!([]));

    let output = daemon.quack(&["new", "--on", "near:-oProxyCommand=x", "/w"]);
    assert_ne!(output.code(), Some(0), "{output:?}");
}

#[test]
fn what_needs_this_machine_is_refused_with_the_reason() {
    let daemon = Daemon::start_with(near());
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let path = at("build1", repo.path());
    for (more, part) in [(json!({"isolated": true}), "isolated"), (json!({"engine": "pi"}), "Pi")] {
        let mut params = json!({"path": path});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = wire.refused("quack.session_new", params);
        assert!(error.contains(part), "{error}");
    }
    let session = far_session(&wire, &path);
    for change in [
        json!({"action": "allow", "rules": ["a.example"]}),
        json!({"action": "set", "network": "hosts", "rules": ["a.example"]}),
        json!({"action": "set", "writableRoots": ["/srv/data"]}),
    ] {
        let mut params = json!({"sessionId": session.id});
        params.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert!(!wire.refused("quack.sandbox", params).is_empty());
    }
    assert_eq!(session.bash("echo fine"), "fine\n\n[Exit code: 0]");
}

#[test]
fn a_workspace_that_is_missing_or_refused_there_is_one_error() {
    let daemon = Daemon::start_with(near());
    let wire = daemon.wire();
    for path in ["/nosuch/workspace", "/etc"] {
        let reply = wire.reply("quack.session_new", json!({"path": format!("near:b:{path}")}));
        let text = match reply["data"]["session"]["id"].as_str() {
            Some(id) => {
                let call = json!({"sessionId": id, "tool": "bash", "arguments": "echo answered"});
                wire.request("quack.tool", call)["text"].as_str().unwrap().to_owned()
            }
            None => format!("Error: {}", reply["error"].as_str().unwrap()),
        };
        assert_one_error(&text);
        assert!(text.contains(path) && !text.contains("answered"), "{text}");
    }
}

/// Octal escapes for `printf`.
fn octal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "\\{byte:03o}").expect("write to a string");
        text
    })
}

/// A script that sends these bytes after the handshake and then waits.
fn sending(bytes: &[u8]) -> String {
    format!("{READY}printf '{}'; exec cat > /dev/null", octal(bytes))
}

/// A data packet with one frame.
fn packet(frame: &Value) -> Vec<u8> {
    let frame = frame.to_string().into_bytes();
    let size = |n: usize| u32::try_from(n).expect("a small number").to_be_bytes();
    let mut bytes = vec![0];
    bytes.extend(size(frame.len() + 4));
    bytes.extend(size(frame.len()));
    bytes.extend(frame);
    bytes
}

/// Names of engines, and the scripts that are their clients. None starts a worker.
fn hostile_scripts() -> Vec<(&'static str, String)> {
    let forged = packet(&json!({"link": {"lost": {"reason": "forged"}}}));
    let waiting = packet(&json!({"link": {"waiting": {"reason": "forged"}}}));
    vec![
        ("ends", "exit 3".to_owned()),
        ("words", "printf 'no \\033[31mroute\\007 to duck\\n' >&2; exit 255".to_owned()),
        ("errors", "echo 'quackd: error no duck here'; exec cat > /dev/null".to_owned()),
        ("noise", "exec yes welcome".to_owned()),
        ("zeros", "exec cat /dev/zero".to_owned()),
        ("shouts", "head -c 50000000 /dev/zero >&2; exit 1".to_owned()),
        ("version", READY.replace("VERSION", "9.9.9") + "exec cat > /dev/null"),
        ("kind", sending(&[9, 0, 0, 0, 0])),
        ("size", sending(&[0, 0x7f, 0xff, 0xff, 0xff])),
        ("acknowledged", sending(&[1, 0, 0, 0, 8, 0x7f, 0, 0, 0, 0, 0, 0, 0])),
        ("short", sending(&[1, 0, 0, 0, 1, 0])),
        ("garbage", format!("{READY}head -c 100000 /dev/urandom; exec cat > /dev/null")),
        ("report", sending(&forged)),
        ("queue", sending(&waiting)),
    ]
}

#[test]
fn a_hostile_far_side_fails_its_own_calls_only() {
    let scripts = hostile_scripts();
    let rows: String = scripts
        .iter()
        .map(|(name, script)| {
            let script = script.replace("VERSION", env!("CARGO_PKG_VERSION"));
            row(name, &script, "target = \"none\"")
        })
        .collect();
    let daemon = Daemon::start_with(rows);
    let wire = daemon.wire();
    let local = wire.attach(daemon.repo("b").path());
    let sessions: Vec<_> =
        scripts.iter().map(|(name, _)| far_session(&wire, &format!("{name}:/w"))).collect();
    // All at once: each may take its whole deadline.
    let calls: Vec<_> =
        sessions.iter().map(|session| session.begin("bash", json!("echo answered"))).collect();
    assert_eq!(local.bash("echo fine"), "fine\n\n[Exit code: 0]");
    for ((name, _), call) in scripts.iter().zip(calls) {
        let text = call.text();
        assert_one_error(&text);
        assert!(!text.contains("answered") && !text.contains("forged"), "{name}: {text}");
        let part = match *name {
            "words" => "route",
            "errors" => "no duck here",
            "version" => "9.9.9",
            _ => "",
        };
        assert!(text.contains(part), "{name}: {text}");
    }
    assert_eq!(local.bash("echo fine"), "fine\n\n[Exit code: 0]");
}

#[test]
fn lines_of_a_login_script_before_the_handshake_are_skipped() {
    let script = format!("yes 'welcome to quackd: the duck' | head -c 5000; echo; {CLIENT}");
    let daemon = Daemon::start_with(row("banner", &script, "target = \"none\""));
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = far_session(&wire, &format!("banner:{}", repo.path().display()));
    assert_eq!(session.bash("echo fine"), "fine\n\n[Exit code: 0]");
}
