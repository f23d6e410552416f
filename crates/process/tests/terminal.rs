//! Tests commands on a pseudo terminal with real bash.

#![cfg(target_os = "linux")]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this file is a test target"
)]

mod commands;

use commands::{NEVER, run, stdout};
use quackd_process::{
    Command, EndedBy, Exit, KeptTerminal, Live, Role, TerminalMaster, harden, open_terminal,
};
use quackd_protocol::terminal::TerminalSignal;
use quackd_testkit::Turn;
use rustix::termios::{Action, tcflow};
use std::sync::Arc;
use std::time::Duration;

/// Sets up this process like a worker, and locks out other tests.
async fn alone() -> Turn {
    quackd_testkit::alone(|| harden(Role::Worker).unwrap()).await
}

/// Returns a command on a terminal with 100 columns and 40 rows, and the other end of the terminal.
fn on_terminal(tag: &str, script: &str) -> (Command, TerminalMaster) {
    let (master, slave) = open_terminal(100, 40).unwrap();
    let terminal = Some(Arc::new(slave));
    let tag = format!("{tag}.{}", std::process::id());
    (Command { terminal, abort_grace: NEVER, ..commands::bash(&tag, script) }, master)
}

/// Waits until the command has printed `word`.
async fn printed(live: &Live, word: &str) {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(word) {
        live.changed().await;
        text.extend(live.take().bytes);
    }
}

#[tokio::test]
async fn a_command_reads_and_writes_its_terminal_until_it_has_exited() {
    let _turn = alone().await;
    let script =
        "stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && read -r line && echo got:$line >&2";
    let (command, master) = on_terminal("terminal", script);
    let (finished, typed) = tokio::join!(run(command), master.write(b"hello\n"));
    let finished = finished.unwrap();
    assert_eq!((finished.exit, finished.ended_by), (Exit::Code(0), EndedBy::Itself));
    assert_eq!(typed.unwrap(), 6);
    let text = stdout(&finished);
    for part in ["40 100\r\n", "hello\r\n", "got:hello\r\n"] {
        assert!(text.contains(part), "{text:?}");
    }
    assert!(!finished.output_open && finished.is_gone);

    // The system takes bytes until its buffer is full. Then the write fails, because no process will read them.
    let filled = async { while master.write(&[b'x'; 4096]).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(60), filled).await.unwrap();
}

#[tokio::test]
async fn a_kept_terminal_serves_one_command_after_the_other_with_its_first_settings() {
    let _turn = alone().await;
    let (kept, slave) = KeptTerminal::open().unwrap();
    drop(slave);
    let script =
        "stty size; stty -a | grep -q -e ' -echo ' && echo CHANGED; echo on $(tty); stty raw -echo";
    let mut names = Vec::new();
    for n in 0..3_u16 {
        let (master, slave) = kept.reopen(100 + n, 40).unwrap();
        let tag = format!("kept{n}.{}", std::process::id());
        let terminal = Some(Arc::new(slave));
        let finished = run(Command { terminal, ..commands::bash(&tag, script) }).await.unwrap();
        drop(master);
        assert_eq!((finished.exit, finished.ended_by), (Exit::Code(0), EndedBy::Itself));
        let text = stdout(&finished);
        assert!(text.contains(&format!("40 {}\r\n", 100 + n)), "{text:?}");
        assert!(!text.contains("CHANGED"), "{text:?}");
        names.extend(text.lines().filter(|line| line.starts_with("on /dev/")).map(str::to_owned));
    }
    assert_eq!(names, vec![names[0].clone(); 3]);
}

#[tokio::test]
async fn a_kept_terminal_prints_again_after_its_output_was_stopped() {
    let _turn = alone().await;
    let (kept, slave) = KeptTerminal::open().unwrap();
    // As a program does it, and then as Ctrl-S does it.
    tcflow(&slave, Action::OOff).unwrap();
    drop(slave);
    for n in 0..2 {
        let (master, slave) = kept.reopen(100, 40).unwrap();
        let tag = format!("stopped{n}.{}", std::process::id());
        let terminal = Some(Arc::new(slave));
        let script = "echo printed; stty -icanon -echo; echo ready; read -r -n 1";
        let (command, live) = (commands::bash(&tag, script), Live::default());
        let running = run(Command { terminal, live: Some(live.clone()), ..command });
        let typing = async {
            printed(&live, "ready").await;
            // Ctrl-S stops the output, and the other key ends the command.
            assert_eq!(master.write(b"\x13x").await.unwrap(), 2);
        };
        let (finished, ()) = tokio::join!(running, typing);
        assert_eq!(finished.unwrap().exit, Exit::Code(0), "{n}");
    }
}

#[tokio::test]
async fn a_command_leads_a_session_with_the_terminal_and_notices_its_size() {
    let _turn = alone().await;
    let script = "trap 'stty size; exit' WINCH
        read -r _ _ _ _ group session terminal foreground _ < /proc/$$/stat
        echo is $$ $group $session $foreground $((terminal != 0)) ready
        while :; do sleep 0.05; done";
    let (command, master) = on_terminal("session", script);
    let live = Live::default();
    let running = run(Command { live: Some(live.clone()), ..command });
    let resizing = async {
        printed(&live, "ready").await;
        master.resize(33, 7).unwrap();
    };
    let (finished, ()) = tokio::join!(running, resizing);
    let text = stdout(&finished.unwrap());
    let words: Vec<_> = text.split_whitespace().collect();
    assert_eq!(words[0], "is", "{text}");
    assert!(words[1..5].iter().all(|word| *word == words[1]), "{text}");
    assert_eq!(words[5..7], ["1", "ready"], "{text}");
    assert!(text.ends_with("7 33\r\n"), "{text}");
}

#[tokio::test]
async fn a_command_that_is_stopped_gets_hup() {
    let _turn = alone().await;
    let script = "trap 'echo closed; exit 7' HUP; echo ready; while :; do sleep 0.05; done";
    let (command, _master) = on_terminal("hup", script);
    let (live, cancel) = (Live::default(), command.cancel.clone());
    let running = run(Command { live: Some(live.clone()), ..command });
    let stopping = async {
        printed(&live, "ready").await;
        cancel.cancel();
    };
    let (finished, ()) = tokio::join!(running, stopping);
    let finished = finished.unwrap();
    assert_eq!((finished.exit, finished.ended_by), (Exit::Code(7), EndedBy::Abort));
    assert!(stdout(&finished).contains("closed"));
}

#[tokio::test]
async fn a_process_that_keeps_the_terminal_does_not_keep_the_command() {
    let _turn = alone().await;
    let (command, _master) = on_terminal("held", "trap '' HUP; sleep 600 & echo left");
    let finished = run(command).await.unwrap();
    assert_eq!((finished.exit, finished.ended_by), (Exit::Code(0), EndedBy::Itself));
    assert_eq!((finished.background_ended, finished.output_open), (1, false));
    assert_eq!(stdout(&finished), "left\r\n");
}

#[tokio::test]
async fn a_signal_reaches_the_foreground_and_nothing_after_the_end() {
    let _turn = alone().await;
    let (command, master) = on_terminal("signal", "echo ready; exec cat");
    let live = Live::default();
    let running = run(Command { live: Some(live.clone()), ..command });
    let signalling = async {
        printed(&live, "ready").await;
        master.signal_foreground(TerminalSignal::Int).unwrap();
    };
    let (finished, ()) = tokio::join!(running, signalling);
    assert_eq!(finished.unwrap().exit, Exit::Signal(2));
    master.signal_foreground(TerminalSignal::Kill).unwrap();
}

#[tokio::test]
async fn a_terminal_that_is_closed_and_opened_again_keeps_working_and_no_wait_blocks_the_thread() {
    let _turn = alone().await;
    // Bash opens the terminal by its path: it is the controlling terminal of its session.
    let script = "exec 0<&- 1>&- 2>&-; for n in 1 2 3; do exec 3<>/dev/tty; echo again $n >&3; exec 3>&-; done";
    let (command, _master) = on_terminal("reopened", script);
    let finished = tokio::time::timeout(Duration::from_secs(60), run(command)).await;
    let finished = finished.unwrap().unwrap();
    assert_eq!((finished.exit, finished.ended_by), (Exit::Code(0), EndedBy::Itself));
    let text = stdout(&finished);
    for n in 1..=3 {
        assert!(text.contains(&format!("again {n}")), "{text:?}");
    }
}
