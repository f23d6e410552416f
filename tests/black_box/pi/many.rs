//! Many prompts, with clients that connect and disconnect: resource usage does not grow.

use super::World;
use crate::harness::{Wire, wait_for};
use serde_json::json;

/// Open descriptors and memory of the daemon.
fn usage(wire: &Wire) -> (u64, u64) {
    let ps = wire.request("quack.ps", json!({}));
    let number = |key: &str| ps["supervisor"][key].as_u64().unwrap_or(0);
    (number("openFiles"), number("rssKb"))
}

#[test]
fn a_thousand_prompts_with_clients_that_leave_at_any_moment() {
    let world = World::new("");
    let observer = world.follower();
    let round = |n: u32| {
        let wire = world.daemon.wire();
        let params = json!({"message": format!("hello {n}"), "preferPi": true});
        match n % 5 {
            // The client disconnects before the answer.
            0 => drop(wire.begin("say", &params)),
            1 => {
                wire.request("follow", json!({}));
                drop(wire.begin("say", &params));
            }
            2 => {
                wire.request("follow", json!({}));
                wire.reply("say", params);
            }
            3 => drop(wire.reply("say", params)),
            _ => {
                wire.request("follow", json!({}));
                wire.request("say", params);
                wire.events_until("agent_start");
            }
        }
        observer.events_until("agent_end");
    };
    (0..100).for_each(round);
    let before = usage(&observer);
    (100..1000).for_each(round);
    wait_for("descriptors to be given back", || (usage(&observer).0 <= before.0 + 4).then_some(()));
    let after = usage(&observer);
    assert!(after.1 <= before.1 + 16 * 1024, "{before:?} {after:?}");
    let prompts = world.read("lines").lines().filter(|line| line.contains("\"prompt\"")).count();
    assert_eq!(prompts, 1000, "each was given to Pi once");
}
