//! `quack tool bash`: a pipe or a file on stdin is the stdin of the command.

use crate::harness::{Daemon, wait_for};
use serde_json::json;
use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn tool(daemon: &Daemon, args: &[&str], stdin: impl Into<Stdio>) -> Command {
    let mut command = daemon.command(&["tool", "bash"]);
    command.args(args).current_dir(daemon.home()).stdin(stdin.into());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn started() -> (Daemon, crate::harness::Repo) {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    (daemon, repo)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_pipe_and_a_file_are_the_stdin_of_the_command_byte_for_byte() {
    let (daemon, repo) = started();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let path = daemon.home().join("input");
    std::fs::write(&path, &bytes).unwrap();
    let at = ["-C", repo.path().to_str().unwrap()];
    let raw = [&at[..], &["--raw", "cat"]].concat();
    let ran = tool(&daemon, &raw, File::open(&path).unwrap()).output().unwrap();
    assert!(ran.status.success() && ran.stdout == bytes, "{} bytes", ran.stdout.len());

    let mut child = tool(&daemon, &[&at[..], &["wc -c"]].concat(), Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert_eq!(text(&ran), "3000000\n\n[Exit code: 0]\n");
    // The command comes from stdin, so that it has no other one.
    let mut child = tool(&daemon, &[&at[..], &["-"]].concat(), Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"wc -c\n").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap()), "0\n\n[Exit code: 0]\n");
    let none = [&at[..], &["-n", "wc -c"]].concat();
    let ran = tool(&daemon, &none, File::open(&path).unwrap()).output().unwrap();
    assert_eq!(text(&ran), "0\n\n[Exit code: 0]\n");
}

#[test]
fn input_arrives_while_the_command_runs_and_a_writer_without_end_is_left() {
    let (daemon, repo) = started();
    let at = ["-C", repo.path().to_str().unwrap()];
    let args = [&at[..], &["read a; echo got $a; read b; echo got $b"]].concat();
    let mut child = tool(&daemon, &args, Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").unwrap();
        let mut line = vec![0; "got one\n".len()];
        std::io::Read::read_exact(&mut stdout, &mut line).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), format!("got {word}\n"));
    }
    // The pipe is still open: the end of the command is the end of the call.
    assert!(child.wait().unwrap().success());
    drop(stdin);

    let mut endless = daemon.program_for_tests("yes").stdout(Stdio::piped()).spawn().unwrap();
    let args = [&at[..], &["head -2"]].concat();
    let ran = tool(&daemon, &args, endless.stdout.take().unwrap()).output().unwrap();
    assert_eq!(text(&ran), "y\ny\n\n[Exit code: 0]\n");
    assert!(!endless.wait().unwrap().success(), "it got SIGPIPE");
}

#[test]
fn a_client_that_leaves_ends_its_command_and_pieces_are_checked() {
    let (daemon, repo) = started();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let call = |id: &str| {
        json!({"sessionId": session.id, "tool": "bash", "arguments": "cat; echo end",
            "callId": id, "stdin": true})
    };
    let (client, other) = (daemon.wire(), daemon.wire());
    let running = client.begin("quack.tool", &call("c"));
    let piece = |bytes: &str, end: bool| json!({"callId": "c", "bytes": bytes, "end": end});
    assert_eq!(client.request("quack.stdin", piece("b25l", false)), json!({"open": true}));
    let refused = client.refused("quack.stdin", piece("not base64!", false));
    assert!(refused.contains("base64"), "{refused}");
    let long = "A".repeat(100_000);
    client.refused("quack.stdin", piece(&long, false));
    // Another client has no such call.
    assert_eq!(other.request("quack.stdin", piece("dHdv", true)), json!({"open": false}));
    assert_eq!(client.request("quack.stdin", piece("", true)), json!({"open": false}));
    assert_eq!(running.reply()["data"]["text"], "oneend\n\n[Exit code: 0]");
    assert_eq!(client.request("quack.stdin", piece("", true)), json!({"open": false}));
    let error =
        client.refused("quack.tool", json!({"tool": "bash", "arguments": "cat", "stdin": true}));
    assert!(error.contains("stdin needs a callId"), "{error}");

    let running = other.begin("quack.tool", &call("c"));
    wait_for("the command to run", || (session.worker()["state"] == "busy").then_some(()));
    drop(running);
    drop(other);
    wait_for("the command to end", || (session.worker()["state"] != "busy").then_some(()));
}
