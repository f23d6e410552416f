//! The question before an address is opened in the user's browser.

use super::{command, end, is_detached, quack};
use crate::harness::tier::needs;
use crate::harness::{Daemon, Repo, Terminal, wait_for, write_program};
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// More than the time without a key after which a key is an answer.
const PAUSE: Duration = Duration::from_millis(1500);

/// Runs a script in the session `web`, in a window on a desktop. Returns the file with the arguments of the program that
/// opens addresses.
#[track_caller]
fn run(daemon: &Daemon, repo: &Repo, script: &str) -> (Terminal, PathBuf) {
    let programs = repo.path().with_file_name("desktop");
    fs::create_dir_all(&programs).expect("a directory");
    let opened = programs.join("opened");
    let opener = format!(
        "#!/bin/sh\n{{ (: </dev/tty) && echo TTY; echo \"$# $1\"; }} >'{0}.new' 2>/dev/null\nmv '{0}.new' '{0}'\n",
        opened.display()
    );
    write_program(&programs.join("xdg-open"), opener);

    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = command(daemon, repo, &["run", "--name", "web", "--", "bash", "-c", script]);
    command.env("PATH", format!("{}:{path}", programs.display())).env("DISPLAY", ":9");
    (Terminal::sized(command, Some((90, 25))), opened)
}

/// Presses a key after each pause until something exists.
#[track_caller]
fn press_until_exists(window: &Terminal, key: &str, file: &Path) {
    let mut pressed = Instant::now();
    wait_for("an effect of the key", || {
        if PAUSE <= pressed.elapsed() {
            window.press(key);
            pressed = Instant::now();
        }
        file.exists().then_some(())
    });
}

#[test]
fn an_address_is_opened_after_a_key_and_not_after_another() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = "xdg-open 'https://a.example/?x=1;y=%2f'; echo asked; read -r x; \
                  xdg-open http://b.example; read -r -n 1 x; echo \"got $x\"; echo >done; exec cat";
    let (window, opened) = run(&daemon, &repo, script);
    window.shows("a/web: open a page of this host in your browser?\na.example\n");
    window.shows("https://a.example/?x=1;y=%2f");
    assert!(!opened.exists());
    press_until_exists(&window, "o", &opened);
    assert_eq!(fs::read_to_string(&opened).unwrap(), "1 https://a.example/?x=1;y=%2f\n");
    window.shows("asked");

    fs::remove_file(&opened).unwrap();
    window.press("\r");
    window.shows("a/web: open a page of this host in your browser?\nb.example\n");
    // The first key ends the question, and the next one is for the program.
    press_until_exists(&window, "n", &repo.path().join("done"));
    window.shows("got n");
    assert!(!opened.exists());
    window.press("\u{1c}");
    is_detached(window);
}

#[test]
fn a_program_that_ends_before_the_answer_loses_no_output() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = "xdg-open https://a.example; until [ -e end ]; do sleep 0.05; done; \
                  echo last words; exit 7";
    let (window, opened) = run(&daemon, &repo, script);
    window.shows("open a page of this host in your browser?");
    repo.write("end", "");
    let (rest, code) = end(window);
    assert_eq!(code, Some(7), "{rest}");
    let output = rest.find("last words").expect("the output");
    let note = rest.find("https://a.example/ was not opened").expect("the address");
    assert!(output < note && !opened.exists(), "{rest}");
}

#[test]
fn the_port_of_a_callback_is_forwarded_while_the_client_is_attached() {
    needs!(Network);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    if !wire.attach(repo.path()).shows_namespaces() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let open =
        format!("xdg-open 'http://a.example/?redirect_uri=http%3A%2F%2Flocalhost%3A{port}%2F'");
    let script = format!("{open}; echo asked; read -r x; {open}; exec cat");
    let (window, opened) = run(&daemon, &repo, &script);
    window.shows(&format!("o opens it and forwards port {port}, n does not"));

    // The second key opens the address although the port is not available.
    press_until_exists(&window, "o", &opened);
    window.see(&format!("Port {port} is in use on this machine"));
    let forwards = || wire.request("quack.forward", json!({"list": true}))["forwards"].clone();
    assert_eq!(forwards(), json!([]));

    drop(taken);
    fs::remove_file(&opened).unwrap();
    window.press("\r");
    press_until_exists(&window, "o", &opened);
    let listed = quack(&daemon, &repo, &["forward", "--list"]).ok();
    assert!(listed.contains(&format!("127.0.0.1:{port}")), "{listed}");
    window.press("\u{1c}");
    is_detached(window);
    assert_eq!(forwards(), json!([]));
}
