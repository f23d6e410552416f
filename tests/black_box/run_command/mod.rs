//! `quack run`, `attach`, `detach` and `play` in a terminal window: the program's screen, its end, and the window after
//! each way out.

mod detaching;
mod filtered;
mod opening;
mod other_machines;
mod small_windows;

use crate::harness::{Cli, Daemon, Repo, Terminal, wait_for};
use crate::isolated::repository;
use crate::terminals::Viewer;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::process::Command;

/// A program that shows each new size of its terminal, and ends with a line.
const SIZES: &str = "trap 'echo now $(stty size)' WINCH; echo at $(stty size); \
                     until [ -e end ]; do sleep 0.05; done; exit 0";

/// The program under test in a repository.
fn command(daemon: &Daemon, repo: &Repo, args: &[&str]) -> Command {
    let mut command = daemon.command(args);
    command.current_dir(repo.path());
    command
}

/// Runs a subcommand without a window.
#[track_caller]
fn quack(daemon: &Daemon, repo: &Repo, args: &[&str]) -> Cli {
    Cli::run(command(daemon, repo, args))
}

/// Runs a subcommand in a window of 90 columns and 25 rows.
#[track_caller]
fn window(daemon: &Daemon, repo: &Repo, args: &[&str]) -> Terminal {
    Terminal::sized(command(daemon, repo, args), Some((90, 25)))
}

/// Like [`window`], and waits until the client reads keys: earlier ones would be lost.
#[track_caller]
fn opened(daemon: &Daemon, repo: &Repo, args: &[&str]) -> Terminal {
    let window = window(daemon, repo, args);
    wait_for("the client to read keys", || window.is_raw().then_some(()));
    window
}

/// Runs a script in the session `web`, in a window.
#[track_caller]
fn run(daemon: &Daemon, repo: &Repo, script: &str) -> Terminal {
    opened(daemon, repo, &["run", "--name", "web", "--", "bash", "-c", script])
}

/// Waits until the client has ended and the terminal is as before. Returns the output that no check has consumed, and the
/// exit code.
#[track_caller]
fn end(window: Terminal) -> (String, Option<i32>) {
    wait_for("the terminal to be as it was", || window.is_cooked().then_some(()));
    window.end()
}

/// The client has detached by itself.
#[track_caller]
fn is_detached(window: Terminal) {
    window.see("[detached from ");
    let modes = window.emulated(|screen| (screen.is_alternate(), screen.cursor().visible));
    assert_eq!(modes, (false, true), "{:?}", window.raw());
    let (rest, code) = end(window);
    assert_eq!(code, Some(0), "{rest}");
}

/// Entry of the running terminals of all workers in `quack.ps`.
#[track_caller]
fn jobs(daemon: &Daemon) -> Vec<Value> {
    let ps = daemon.wire().request("quack.ps", json!({}));
    let workers = ps["workers"].as_array().expect("workers");
    workers.iter().flat_map(|it| it["jobs"].as_array().cloned().unwrap_or_default()).collect()
}

/// A client on the wire that is attached to the first terminal of the session `web`.
#[track_caller]
fn viewer(daemon: &Daemon) -> Viewer {
    let shown = daemon.wire().request("sessions", json!({"all": true}));
    let rows = shown["sessions"].as_array().expect("sessions");
    let web = rows.iter().find(|row| row["name"] == "web").expect("the session web");
    Viewer::attach_to(daemon, web["id"].as_str().expect("an id"), "term-1", &json!({}))
}

#[test]
fn the_exit_code_of_the_program_is_that_of_the_client() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    for (last, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let script = format!("echo ready; read -r x; echo \"got $x\"; {last}");
        let window = window(&daemon, &repo, &["run", "--", "bash", "-c", &script]);
        window.shows("ready");
        assert!(!window.is_cooked());
        window.press("typed\r");
        window.see("got typed");
        let (rest, code) = end(window);
        assert_eq!(code, Some(expected), "{last}: {rest}");
    }
    wait_for("the ends to be reported", || jobs(&daemon).is_empty().then_some(()));
    let window = window(&daemon, &repo, &["run", "--", "no-such-program"]);
    window.see("no-such-program not found in PATH");
    let (_, code) = end(window);
    assert!(code.is_some_and(|code| ![0, 3].contains(&code)), "{code:?}");
}

/// Labels of all sessions.
#[track_caller]
fn sessions(daemon: &Daemon) -> Vec<String> {
    let shown = daemon.wire().request("sessions", json!({"all": true}));
    let rows = shown["sessions"].as_array().expect("sessions");
    rows.iter().map(|row| row["label"].as_str().expect("a label").to_owned()).collect()
}

#[test]
fn a_session_without_a_name_and_other_work_ends_with_its_program() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = ["--", "bash", "-c", "echo ready; read -r x; exit 3"];
    let begin = |options: &[&str]| {
        let window = window(&daemon, &repo, &[&["run"][..], options, &script].concat());
        window.shows("ready");
        window
    };
    let finish = |window: Terminal| {
        window.press("\r");
        let (rest, code) = end(window);
        assert_eq!(code, Some(3), "{rest}");
        rest
    };

    let first = begin(&[]);
    assert_eq!(sessions(&daemon).len(), 1);
    assert!(finish(first).contains("session deleted"));
    assert_eq!(sessions(&daemon), Vec::<String>::new());

    for (n, options) in [&["--keep"][..], &["--name", "web"], &["--record"]].into_iter().enumerate()
    {
        let rest = finish(begin(options));
        assert!(!rest.contains("session deleted"), "{options:?}: {rest}");
        assert_eq!(sessions(&daemon).len(), n + 1, "{options:?}");
    }

    // Another program in it, which runs or has ended, keeps it too.
    for program in [&["cat"][..], &["echo", "said"]] {
        let known = sessions(&daemon);
        let window = begin(&[]);
        let new = sessions(&daemon).into_iter().find(|label| !known.contains(label));
        let new = new.expect("a new session");
        quack(&daemon, &repo, &[&["run", "-d", "--in", &new, "--"][..], program].concat()).ok();
        finish(window);
        assert!(sessions(&daemon).contains(&new), "{program:?}");
    }

    let known = sessions(&daemon);
    let window = begin(&[]);
    let new = sessions(&daemon).into_iter().find(|label| !known.contains(label));
    let new = new.expect("a new session");
    quack(&daemon, &repo, &["pin", &new]).ok();
    finish(window);
    assert!(sessions(&daemon).contains(&new), "it is pinned");
}

#[test]
fn a_session_stays_with_a_warning_if_its_program_has_made_a_file_that_others_obey() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    // Without namespaces, a worker cannot create names next to a repository.
    std::fs::remove_dir(repo.path().join(".git")).unwrap();
    let script = "echo ready; read -r x; echo x > .envrc";
    let window = window(&daemon, &repo, &["run", "--", "bash", "-c", script]);
    window.shows("ready");
    window.press("\r");
    let (rest, code) = end(window);
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains(".envrc was made") && !rest.contains("session deleted"), "{rest}");
    assert_eq!(sessions(&daemon).len(), 1);
}

#[test]
fn an_isolated_session_stays_after_its_program() {
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    let first = opened(&daemon, &repo, &["run", "--isolated", "--", "cat"]);
    first.press("\u{4}");
    assert_eq!(end(first).1, Some(0));
    assert_eq!(sessions(&daemon).len(), 1);
}

#[test]
fn a_session_stays_when_its_client_detaches() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = opened(&daemon, &repo, &["run", "--", "cat"]);
    first.press("\u{1c}");
    is_detached(first);
    let second = opened(&daemon, &repo, &["attach"]);
    second.press("\u{4}");
    assert_eq!(end(second).1, Some(0));
    assert_eq!(sessions(&daemon).len(), 1);
}

#[test]
fn the_program_has_the_size_of_the_window_and_follows_it() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let window = run(&daemon, &repo, SIZES);
    window.shows("at 25 90");
    window.resize(70, 20);
    window.shows("now 20 70");
    for n in 0..50 {
        window.resize(60 + n, 20);
    }
    window.resize(81, 23);
    window.shows("now 23 81");
    repo.write("end", "");
    assert_eq!(end(window).1, Some(0));
}

#[test]
fn without_a_command_the_users_shell_runs() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let window = opened(&daemon, &repo, &["run"]);
    window.press("echo $((6*7)) $COLUMNS\r");
    window.shows("42 90");
    window.press("exit 4\r");
    assert_eq!(end(window).1, Some(4));
}

#[test]
fn variables_of_the_user_enter_only_by_name() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = "echo \"[$PASSED] [$GIVEN] [$SECRET] [$COLORTERM]\"; read -r x";
    let args = ["run", "--env", "PASSED", "--env", "GIVEN=a value", "--", "sh", "-c", script];
    let mut command = command(&daemon, &repo, &args);
    command.env("PASSED", "from the shell").env("SECRET", "no").env("COLORTERM", "truecolor");
    let window = Terminal::sized(command, Some((90, 25)));
    window.shows("[from the shell] [a value] [] [truecolor]");
    window.press("\r");
    assert_eq!(end(window).1, Some(0));
}

#[test]
fn the_program_learns_the_colors_of_the_users_terminal() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = "stty -echo -icanon; printf '\\033]11;?\\007'; read -r -d $'\\a' answer; \
                  echo \"background ${answer##*:}\"; read -r line; echo \"got [$line]\"";
    let command = command(&daemon, &repo, &["run", "--", "bash", "-c", script]);
    let answers =
        "\u{1b}]12;rgb:0/0/0\u{7}\u{1b}]10;rgb:10/20/30\u{7}\u{1b}]11;rgb:fefe/fdfd/fcfc\u{1b}\\";
    let window = Terminal::with_input(command, Some((90, 25)), answers);
    window.shows("background fefe/fdfd/fcfc");
    // The answers are not input of the program.
    window.press("typed\r");
    window.see("got [typed]");
    assert_eq!(end(window).1, Some(0));
}

#[test]
fn without_a_terminal_only_detached_programs_run() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    for args in [&["run", "--", "true"][..], &["run"]] {
        let refused = quack(&daemon, &repo, args);
        assert_eq!(refused.code(), Some(2), "{refused:?}");
        let text = refused.stderr();
        assert!(text.contains("-d") && text.contains("quack tool bash"), "{text}");
    }
    assert_eq!(jobs(&daemon), Vec::<Value>::new());

    // A rule that is refused leaves no session behind.
    let args = ["run", "-d", "--name", "web", "--allow", "@no-such-preset", "--", "true"];
    assert_ne!(quack(&daemon, &repo, &args).code(), Some(0));
    let sessions = daemon.wire().request("sessions", json!({"all": true}));
    assert!(!sessions.to_string().contains("\"web\""), "{sessions}");

    let started = quack(&daemon, &repo, &["run", "-d", "--name", "web", "--", "cat"]).ok();
    assert!(started.contains("term-1 of ") && started.contains("attach"), "{started}");
    assert_eq!(jobs(&daemon)[0]["jobId"], "term-1");
    let args = ["run", "-d", "--in", "web", "--json", "--", "bash", "-c", "echo second; exec cat"];
    let data = quack(&daemon, &repo, &args).json();
    assert_eq!(data["terminalId"], "term-2", "{data}");

    // Both are found by their names; without a number it is the last one.
    let first = opened(&daemon, &repo, &["attach", "web/term-1"]);
    first.press("to the first\r");
    first.until("the line twice", |screen| screen.text().matches("to the first").count() == 2);
    let second = opened(&daemon, &repo, &["attach", "web"]);
    second.shows("second");
    assert!(!second.picture().contains("to the first"), "{}", second.picture());
    for args in [&["attach", "web/term-7"][..], &["attach", "nobody"]] {
        let refused = window(&daemon, &repo, args);
        let (_, code) = end(refused);
        assert!(code.is_some_and(|code| code != 0), "{args:?}: {code:?}");
    }
    for window in [first, second] {
        window.press("\u{4}");
        assert_eq!(end(window).1, Some(0));
    }
    let none = window(&daemon, &repo, &["attach", "web"]);
    none.see("exited with code 0; quack jobs -f term-");
    assert_ne!(end(none).1, Some(0));
}

#[test]
fn a_recording_is_played_and_filtered() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = "echo recorded; printf '\\033]52;c;aGFjaw==\\007'; read -r x; echo \"got $x\"";
    let args = ["run", "--name", "web", "--record", "--", "bash", "-c", script];
    let first = window(&daemon, &repo, &args);
    first.shows("recorded");
    first.press("typed\r");
    first.see("got typed");
    // The lines of the window are above the program's screen, and the note is repeated below it.
    assert!(first.raw().contains(&"\n".repeat(25)), "{:?}", first.raw());
    let (rest, code) = end(first);
    assert!(rest.contains("recorded in "), "{rest}");
    assert_eq!(code, Some(0));

    let runs = std::fs::read_dir(daemon.app().join("run")).unwrap();
    let files: Vec<_> = runs.map(|it| it.unwrap().path().join("term-1.cast")).collect();
    let file = files.iter().find(|file| file.exists()).expect("a recording");
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["version"], &lines[0]["width"], &lines[0]["height"]),
        (&json!(2), &json!(90), &json!(25))
    );
    assert!(lines[1..].iter().any(|line| line[1] == "o"), "{text}");
    assert!(lines[1..].iter().all(|line| line[1] != "i"), "input was not asked for: {text}");

    let played = window(&daemon, &repo, &["play", "--speed", "100", file.to_str().unwrap()]);
    played.see("recorded");
    played.see("got typed");
    let raw = played.raw();
    assert!(!raw.contains("\u{1b}]52"), "{raw:?}");
    assert_eq!(end(played).1, Some(0));
}

#[test]
fn the_end_of_the_daemon_gives_the_window_back() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut daemon = Daemon::start();
        let repo = daemon.repo("a");
        let window = run(&daemon, &repo, "printf '\\033[?1049h\\033[?25lready'; read -r x");
        window.shows("ready");
        daemon.signal(signal);
        daemon.wait();
        wait_for("the terminal to be as it was", || window.is_cooked().then_some(()));
        assert_eq!(window.end().1, Some(3), "{signal:?}");
    }
}
