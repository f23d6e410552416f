//! Names of conversations and of their copies.

use super::{World, command, refusal, state, turn};
use crate::names::{SAFE, unsafe_names};
use serde_json::json;

#[test]
fn a_conversation_with_an_unsafe_name_keeps_its_old_one_and_is_not_copied() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let wire = world.follower();
    turn(&wire, "first");
    command(&wire, json!({"type": "set_session_name", "name": "before"}));
    let file = state(&wire)["sessionFile"].as_str().unwrap().to_owned();
    let files = || {
        let dir = std::path::Path::new(&file).parent().unwrap();
        std::fs::read_dir(dir).unwrap().count()
    };
    let n_files = files();
    for (name, end) in unsafe_names() {
        let expected = format!("Session name must be 1 to 100 printable characters, {end}");
        let error = refusal(&wire, json!({"type": "set_session_name", "name": name}));
        assert_eq!(error, expected, "{name:?}");
        assert_eq!(wire.refused("quack.fork", json!({"name": name})), expected, "{name:?}");
    }
    assert_eq!(state(&wire)["sessionName"], "before");
    assert_eq!(files(), n_files, "no copy is left");
    for name in SAFE {
        command(&wire, json!({"type": "set_session_name", "name": name}));
        assert_eq!(state(&wire)["sessionName"], name);
        assert_eq!(wire.request("quack.fork", json!({"name": name}))["sessionName"], name);
    }
}
