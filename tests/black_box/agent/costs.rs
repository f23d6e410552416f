//! What turns cost: an unknown price, the provider's own cost, and limits of one prompt and of one day.

use super::prompt::at_repo;
use super::{World, answer, command, only, text, turn};
use crate::harness::{Wire, wait_for};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;

/// A world with one model of this provider, with these prices.
#[track_caller]
fn world(provider: &str, cost: &Value, script: &Value, config: &str) -> World {
    let mut world = World::absent(script);
    let mut model = json!({"id": "m", "contextWindow": 128_000, "maxTokens": 4096});
    if !cost.is_null() {
        model["cost"] = cost.clone();
    }
    let base = world.model.v1();
    let models = json!({"providers": {provider: {"baseUrl": base, "apiKey": "sk-fake",
        "api": "openai-completions", "models": [model]}}});
    std::fs::write(world.agent.join("models.json"), models.to_string()).unwrap();
    world.configure(config);
    world.boot(&[]);
    world
}

/// Runs `quack` in the repository. Returns the exit code and all output.
#[track_caller]
fn run(world: &World, args: &[&str]) -> (Option<i32>, String) {
    let output = at_repo(world, args).output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(all).unwrap())
}

#[track_caller]
fn stats(wire: &Wire) -> Value {
    command(wire, json!({"type": "get_session_stats"}))
}

#[test]
fn a_cost_without_a_price_is_unknown_wherever_a_person_reads_it() {
    let script = json!({"on_exhausted": "echo"});
    let world = world("x", &Value::Null, &script, "");
    let (code, said) = run(&world, &["say", "hi"]);
    assert_eq!(code, Some(0), "{said}");
    for verb in [&["history"][..], &["state"], &["export"], &["export", "--html"], &["models"]] {
        let (_, shown) = run(&world, verb);
        assert!(shown.contains("unknown") && !shown.contains("$0.0000"), "{verb:?}: {shown}");
    }
    let wire = world.follower();
    let state = command(&wire, json!({"type": "get_state"}));
    assert_eq!(
        (&state["model"]["price"], &state["model"]["cost"]["input"]),
        (&json!("unknown"), &json!(0.0))
    );
    let stats = stats(&wire);
    assert_eq!((&stats["cost"], &stats["costUnknown"]), (&json!(0.0), &json!(true)));
    let events = turn(&wire, "again");
    let cost = &answer(&events)["usage"]["cost"];
    assert_eq!((&cost["total"], &cost["unknown"]), (&json!(0.0), &json!(true)));
}

#[test]
fn a_price_of_zero_and_a_server_without_a_key_are_free() {
    let script = json!({"on_exhausted": "echo"});
    let free = world("x", &json!({"input": 0, "output": 0}), &script, "agent.max_cost_usd = 0.5\n");
    assert_eq!(run(&free, &["say", "hi"]).0, Some(0));
    assert!(run(&free, &["history"]).1.contains("$0.0000"));
    let mut local = World::absent(&script);
    std::fs::remove_file(local.agent.join("models.json")).unwrap();
    let config = format!(
        "model.base_url = \"{}\"\nmodel.name = \"m\"\nagent.max_cost_usd = 0.5\n",
        local.model.v1()
    );
    local.configure(&config);
    local.boot(&[]);
    assert_eq!(run(&local, &["say", "hi"]).0, Some(0));
    assert!(run(&local, &["models"]).1.contains("free"));
}

#[test]
fn a_limit_refuses_a_model_without_a_price_and_says_what_to_set() {
    for key in ["agent.max_cost_usd", "agent.max_cost_usd_per_day"] {
        let script = json!({"on_exhausted": "echo"});
        let world = world("x", &Value::Null, &script, &format!("{key} = 0.5\n"));
        let (code, said) = run(&world, &["say", "hi"]);
        assert_eq!(code, Some(1), "{said}");
        for part in ["the price of x/m is not known", "models.json", &format!("unset {key}")] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(world.model.count("requests"), 0);
    }
}

#[test]
fn a_price_that_the_user_adds_is_in_force_with_the_next_prompt() {
    let world =
        world("x", &Value::Null, &json!({"on_exhausted": "echo"}), "agent.max_cost_usd = 0.5\n");
    assert_eq!(run(&world, &["say", "hi"]).0, Some(1));
    let path = world.agent.join("models.json");
    let mut models: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    models["providers"]["x"]["models"][0]["cost"] = json!({"input": 1, "output": 2});
    std::fs::write(&path, models.to_string()).unwrap();
    // The daemon looks at the file once in a second.
    wait_for("the price to be known", || (run(&world, &["say", "hi"]).0 == Some(0)).then_some(()));
}

#[test]
fn the_providers_own_cost_counts_against_a_fraction_of_a_dollar() {
    let call = json!({"name": "bash", "arguments": {"command": "true"}});
    let script =
        json!({"replies": [{"tool_calls": [call], "cost": 0.3}, {"text": "done", "cost": 0.3}]});
    let world = world("openrouter", &Value::Null, &script, "agent.max_cost_usd = 0.25\n");
    let wire = world.follower();
    let events = turn(&wire, "hi");
    assert_eq!(only(&events, "agent_end")["reason"], "budget");
    let error = answer(&events)["errorMessage"].as_str().unwrap();
    assert!(error.contains("$0.3000 of $0.2500 (agent.max_cost_usd)"), "{error}");
    assert_eq!(stats(&wire)["cost"], 0.3);
    // The limit is one of each prompt.
    assert_eq!(text(answer(&turn(&wire, "again"))), "done");
    assert_eq!(stats(&wire)["cost"], 0.6);
    // An answer without its cost ends what would follow.
    let without = json!({"replies": [{"tool_calls": [call]}, {"text": "done"}]});
    world.model.script(&without);
    let events = turn(&wire, "without");
    let error = answer(&events)["errorMessage"].as_str().unwrap();
    assert!(error.contains("has not sent the cost of an answer"), "{error}");
}

#[test]
fn a_limit_of_a_day_holds_over_sessions_and_a_restart() {
    let prices = json!({"input": 60, "output": 1});
    let script = json!({"replies": [{"text": "x", "usage": {"prompt": 10_000, "completion": 0}}]});
    let mut world = world("x", &prices, &script, "agent.max_cost_usd_per_day = 1.0\n");
    let wire = world.follower();
    turn(&wire, "one");
    drop(wire);
    let file = world.daemon.app().join("spending.json");
    let read = || serde_json::from_slice::<Value>(&std::fs::read(&file).ok()?).ok();
    wait_for("the cost to be saved", || read().filter(|spent| spent["usd"] == 0.6));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    world.daemon.quack(&["stop"]).ok();
    world.daemon.wait();
    world.boot(&[]);
    let (code, said) = run(&world, &["new", "--name", "other"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(run(&world, &["say", "--session", "other", "two"]).0, Some(0));
    let (code, said) = run(&world, &["say", "three"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("$1.2000 of $1.0000 in all sessions"), "{said}");
    assert_eq!(world.model.count("requests"), 2);
    // Another day begins another sum.
    world.daemon.quack(&["stop"]).ok();
    world.daemon.wait();
    std::fs::write(&file, r#"{"day":"2026-01-01","usd":7}"#).unwrap();
    world.boot(&[]);
    assert_eq!(run(&world, &["say", "four"]).0, Some(0));
}

#[test]
fn limits_of_cost_are_set_with_fractions() {
    let world = World::new(&json!({}));
    let set = |value: &str| run(&world, &["config", "set", "agent.max_cost_usd", value]);
    assert_eq!(set("0.5").0, Some(0));
    let shown = run(&world, &["config", "show"]).1;
    assert!(
        shown.contains("agent.max_cost_usd = 0.5") || shown.contains("max_cost_usd = 0.5"),
        "{shown}"
    );
    for wrong in ["-1", "nan", "inf", "1e9", "much"] {
        let (code, text) = set(wrong);
        assert!(code != Some(0) && text.contains("a number from 0 to 1000000"), "{wrong}: {text}");
    }
}
