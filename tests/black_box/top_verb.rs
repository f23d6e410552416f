//! `quack top` on a terminal with a busy daemon: the display, the keys, and the restored terminal
//! after every kind of exit.

use crate::harness::{Daemon, Terminal, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

/// Sequences that switch to the full screen and back.
const UP: &str = "\u{1b}[?1049h";
const DOWN: &str = "\u{1b}[?1049l";

#[track_caller]
fn top(daemon: &Daemon) -> Terminal {
    let mut command = daemon.command(&["top"]);
    command.env("TERM", "xterm-256color");
    let screen = Terminal::sized(command, Some((100, 24)));
    screen.see(UP);
    screen
}

#[track_caller]
fn ends_well(screen: Terminal) {
    screen.see(DOWN);
    wait_for("the terminal to be as it was", || screen.is_cooked().then_some(()));
    let (_, code) = screen.end();
    assert_eq!(code, Some(0));
}

#[test]
fn top_shows_a_call_in_flight_and_ends_it_when_a_person_says_so_twice() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let call = session.begin("bash", json!({"command": "echo begun; sleep 60"}));
    // A killed worker's queued calls move to the next worker, so wait until this call runs.
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let screen = top(&daemon);
    screen.stands("a  ");
    screen.stands("working");
    assert!(!screen.is_cooked());
    screen.press("a");
    screen.stands("End the calls of a? [y/N]");
    screen.press("n");
    screen.stands("q quit");
    assert_eq!(session.worker()["calls"].as_array().map(Vec::len), Some(1));
    screen.press("ay");
    screen.stands("Ended the calls of a.");
    assert!(call.text().contains("[Process aborted]"));
    screen.press("p");
    wait_for("the session to be pinned", || (session.worker()["pinned"] == true).then_some(()));
    screen.press("q");
    ends_well(screen);
}

#[test]
fn top_kills_a_worker_and_its_calls_say_that_a_person_did() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let call = session.begin("bash", json!({"command": "echo begun; sleep 60"}));
    // A killed worker's queued calls move to the next worker, so wait until this call runs.
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let screen = top(&daemon);
    screen.stands("working");
    screen.press("xy");
    screen.stands("Killed the worker of a.");
    assert_eq!(
        call.text(),
        "Error: Worker died during bash (killed by a person). It may have run; it was not retried."
    );
    screen.stands("LAST DEATHS");
    screen.stands("killed by a person");
    let deaths = wire.request("quack.ps", json!({}))["deaths"].clone();
    assert_eq!(deaths[0]["cause"], "killed by a person");
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    drop(screen);
}

#[test]
fn top_follows_a_session_and_comes_back() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let screen = top(&daemon);
    screen.stands("a  ");
    screen.press("f");
    screen.see(DOWN);
    screen.see("-- q or Esc comes back --");
    session.bash("echo something to see");
    screen.see("  something to see");
    screen.press("q");
    screen.see(UP);
    screen.stands("a  ");
    screen.press("q");
    ends_well(screen);
}

#[test]
fn top_gives_the_terminal_back_when_it_is_stopped_or_ended_from_outside() {
    let daemon = Daemon::start();
    let screen = top(&daemon);
    screen.stands("No session was used");
    screen.signal(Signal::SIGTSTP);
    screen.see(DOWN);
    wait_for("the verb to be stopped", || screen.is_stopped().then_some(()));
    assert!(screen.is_cooked());
    screen.signal(Signal::SIGCONT);
    screen.see(UP);
    screen.stands("No session was used");
    assert!(!screen.is_cooked());
    screen.signal(Signal::SIGTERM);
    ends_well(screen);
}

#[test]
fn top_outlives_a_daemon_that_comes_back() {
    let mut daemon = Daemon::start();
    let screen = top(&daemon);
    screen.stands("No session was used");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    screen.stands("no daemon, waiting for one");
    daemon.boot();
    {
        let repo = daemon.repo("a");
        let wire = daemon.wire();
        wire.attach(repo.path()).bash("true");
        screen.stands("a  ");
    }
    screen.press("q");
    ends_well(screen);
}

#[test]
fn top_without_a_terminal_names_what_scripts_use() {
    let daemon = Daemon::start();
    for args in [&["top"][..], &["top", "--json"]] {
        let ended = daemon.quack(args);
        assert_eq!(ended.code(), Some(2));
        assert!(ended.stderr().contains("`quack ps --json`"), "{}", ended.stderr());
    }
}

/// Tests with terminals that no other process has open, regardless of concurrent tests.
#[cfg(target_os = "linux")]
mod vanishing {
    use crate::harness::{Daemon, wait_for};
    use nix::fcntl::OFlag;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
    use rustix::termios::Winsize;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    /// Starts a subcommand on a terminal that closes once `part` is displayed. Returns its exit
    /// code. Its stderr goes to the same terminal.
    #[track_caller]
    fn until_the_terminal_vanishes(mut command: Command, part: &str) -> Option<i32> {
        // A concurrently started program must not inherit the other end, because it would keep the
        // terminal open.
        let mut terminal =
            posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&terminal, size).unwrap();
        let end = || {
            let mut options = File::options();
            let options = options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
            options.open(ptsname_r(&terminal).unwrap()).unwrap()
        };
        command.stdin(end()).stdout(end()).stderr(end());
        let mut child = command.spawn().unwrap();
        // `Command` holds the terminal: drop it, so that only the subcommand has the terminal open.
        drop(command);
        let (mut shown, mut piece) = (String::new(), [0; 4096]);
        while !shown.contains(part) {
            let mut watched = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut watched, PollTimeout::from(20_000_u16)).unwrap();
            assert!(ready != 0, "no {part:?} in {shown:?}");
            let n = terminal.read(&mut piece).unwrap();
            shown.push_str(&String::from_utf8_lossy(&piece[..n]));
        }
        drop(terminal);
        wait_for("the verb to end", || child.try_wait().unwrap()).code()
    }

    #[test]
    fn top_ends_quietly_when_its_terminal_vanishes() {
        let daemon = Daemon::start();
        // Like a shell job whose terminal closes, without a signal.
        let mut command = daemon.command(&["top"]);
        command.env("TERM", "xterm-256color");
        assert_eq!(until_the_terminal_vanishes(command, "quit"), Some(0));
        // Like the process that a terminal was opened for: the kernel sends SIGHUP.
        let mut command = daemon.program_for_tests("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_quack"), "top"]);
        assert_eq!(until_the_terminal_vanishes(command, "quit"), Some(0));
    }

    #[test]
    fn no_verb_that_runs_on_panics_when_its_terminal_vanishes() {
        let daemon = Daemon::start();
        let repo = daemon.repo("a");
        daemon.wire().attach(repo.path()).bash("true");
        for (args, part) in [
            (&["follow", "--session", "duck-1"][..], "workspace-write"),
            (&["ps", "--watch=1"], "supervisor"),
            (&["logs", "-f"], "daemon"),
        ] {
            let code = until_the_terminal_vanishes(daemon.command(args), part);
            assert!(matches!(code, Some(0 | 1)), "{args:?}: {code:?}");
        }
    }
}
