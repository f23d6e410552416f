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
    // Also the runtime's own pair for signals, if it has one.
    let own = sockets.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(own, 1, "{sockets:?}");
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
