//! Golden transcripts: the bytes that clients of the Rubber Duck daemon send, and the bytes that it
//! answers, line for line and key for key.
//!
//! The files next to this one contain lines as that daemon writes them. Differences of quackd are
//! marked in the files; docs/protocol.md gives the reasons. Each block runs in a fresh world.
//! Clients have letters, and each client's lines must arrive in the order of the file.
//!
//! | in a file | means |
//! |---|---|
//! | `= text` | begins a block that shows this |
//! | `a> text` | client `a` sends these bytes and a line end |
//! | `a< text` | the next line that `a` gets |
//! | `a!` | `a` disconnects |
//! | `# text` | a comment |
//! | `<name>` | some characters of a text, a number or a boolean; every use of the name has the same value |
//! | `<text>`, `<number>`, `<time>` | like `<name>`, but each use may have another value |
//! | `<+key,key>` | quackd's additional keys, in this order, with any values |
//!
//! `<repo>`, `<other>` and `<state>` are two workspaces and the state directory. Lines that a block
//! does not contain fail it at its end.

mod pattern;

use crate::harness::{Daemon, Wire};
use crate::schema::Checker;
use pattern::Names;
use std::collections::BTreeMap;

/// Requests that violate the schemas but that the daemon accepts: the schemas define what a client
/// should send.
const ODD: &[&str] = &[
    "voice_tool_call is not as its schema says: /params/arguments: {\"path\":\"README.md\"} is not",
    "say is not as its schema says: /params/message: [\"a\",1] is not",
    "voice_say is not as its schema says: /data/text: [\"a\",1] is not",
    "message_start is not as its schema says: /data/message/content: [\"a\",1] is not",
];

#[test]
fn the_envelope_is_the_recorded_one() {
    play_all(include_str!("envelope.txt"));
}

#[test]
fn the_methods_answer_as_recorded() {
    play_all(include_str!("methods.txt"));
}

#[test]
fn voice_is_as_recorded() {
    play_all(include_str!("voice.txt"));
}

/// A wrong transcript must fail.
#[test]
fn what_is_not_as_recorded_is_told_with_its_line() {
    let played =
        play(&["= x", r#"a> {"id":1,"method":"unfollow"}"#, r#"a< {"ok":true,"id":1}"#], 1);
    assert!(played.unwrap_err().starts_with("3: "));
    let played = play(&["= x", r#"a> {"id":1,"method":"unfollow"}"#], 7);
    assert!(played.unwrap_err().starts_with("7: not recorded: {\"id\":1,"));
}

fn play_all(file: &str) {
    let lines: Vec<&str> = file.lines().collect();
    let begins: Vec<usize> = (0..lines.len()).filter(|n| lines[*n].starts_with("= ")).collect();
    assert!(2 < begins.len(), "no blocks");
    let ends = begins.iter().skip(1).copied().chain([lines.len()]);
    let blocks = begins.iter().zip(ends);
    let wrong: Vec<String> =
        blocks.filter_map(|(from, to)| play(&lines[*from..to], from + 1).err()).collect();
    assert!(wrong.is_empty(), "\n\n{}\n", wrong.join("\n\n"));
}

/// Plays one block, whose first line has the number `first`. The error describes the difference.
fn play(lines: &[&str], first: usize) -> Result<(), String> {
    let daemon = Daemon::start();
    let mut names = Names::default();
    let (repo, other) = (daemon.repo("repo"), daemon.repo("other"));
    names.set("repo", &repo.path().to_string_lossy());
    names.set("other", &other.path().to_string_lossy());
    names.set("state", &daemon.app().to_string_lossy());
    let mut clients: BTreeMap<&str, (Wire, Checker)> = BTreeMap::new();
    for (number, line) in (first..).zip(lines) {
        if line.is_empty() || line.starts_with(['#', '=']) {
            continue;
        }
        let (client, rest) = line.split_at(1);
        let (what, text) = rest.split_at(1);
        if what == "!" {
            clients.remove(client);
            continue;
        }
        let (wire, checker) =
            clients.entry(client).or_insert_with(|| (daemon.wire(), Checker::default()));
        let text = text.strip_prefix(' ').unwrap_or(text);
        match what {
            ">" => {
                let text = names.fill(text);
                checker.sent(&text);
                wire.write(format!("{text}\n").as_bytes());
            }
            "<" => {
                let found = wire.line().ok_or_else(|| format!("{number}: closed"))?;
                names.matches(text, &found).map_err(|why| {
                    format!("{number}: {why}\n  recorded: {text}\n  found:    {found}")
                })?;
                let line = serde_json::from_str(&found).expect("a line of JSON");
                match checker.got(&line) {
                    Err(why) if !ODD.iter().any(|odd| why.contains(odd)) => {
                        return Err(format!("{number}: {why}"));
                    }
                    _ => {}
                }
            }
            _ => panic!("{number}: cannot read {line:?}"),
        }
    }
    for (wire, _checker) in clients.values() {
        wire.write(b"{\"id\":\"last\",\"method\":\"nosuch\"}\n");
        let found = wire.line().ok_or_else(|| format!("{first}: closed"))?;
        if found
            != r#"{"id":"last","ok":false,"error":"Unknown method: nosuch","code":"unknown_method"}"#
        {
            return Err(format!("{first}: not recorded: {found}"));
        }
    }
    Ok(())
}
