//! What the agent's process has and what it may do. On Linux.
#![cfg(target_os = "linux")]

use super::{World, turn};
use crate::harness::untested;
use serde_json::json;

#[test]
fn the_agent_has_nothing_open_but_its_channel_and_its_session_file() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let wire = world.follower();
    turn(&wire, "hello");
    let agent = world.agent_process();
    let file = super::state(&wire)["sessionFile"].as_str().unwrap().to_owned();
    let (mut sockets, mut files) = (Vec::new(), Vec::new());
    let open = match std::fs::read_dir(format!("/proc/{}/fd", agent.pid)) {
        Ok(open) => open,
        Err(error) => return untested(&format!("its descriptors are not readable: {error}")),
    };
    for entry in open {
        let target = std::fs::read_link(entry.unwrap().path()).unwrap();
        let target = target.to_str().unwrap().to_owned();
        match target.split(':').next() {
            Some("socket") => sockets.push(target),
            Some("pipe" | "anon_inode") | Some("/dev/null") => {}
            _ => files.push(target),
        }
    }
    assert_eq!(files, [file]);
    // The channel to the supervisor, and the pair in which the runtime reports signals to itself.
    let table = |name: &str| {
        std::fs::read_to_string(format!("/proc/{}/net/{name}", agent.pid)).unwrap_or_default()
    };
    let (unix, internet) =
        (table("unix"), ["tcp", "tcp6", "udp", "udp6", "raw", "packet"].map(table));
    let inode = |socket: &String| socket.trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
    let inodes: std::collections::BTreeSet<_> = sockets.iter().map(inode).collect();
    assert_eq!(inodes.len(), 3, "{sockets:?}");
    for inode in &inodes {
        let is_in = |table: &String| table.split_whitespace().any(|word| word == inode);
        assert!(is_in(&unix) && !internet.iter().any(is_in), "{inode} in {unix}");
        // A socket with a path could be reached by others.
        let line = unix.lines().find(|line| line.split_whitespace().any(|word| word == inode));
        assert_eq!(line.unwrap().split_whitespace().count(), 7, "a name: {line:?}");
    }
}

#[test]
fn the_agent_is_confined() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let wire = world.follower();
    turn(&wire, "hello");
    let agent = world.agent_process();
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid)).unwrap();
    let field = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no {name} in {status}")).1.trim().to_owned()
    };
    assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
    for name in ["CapEff", "CapPrm"] {
        assert_eq!(field(name).trim_matches('0'), "", "{name}");
    }
}
