//! The model of a session: its choice, its record in the session file, and changes while it answers.

use super::*;
use quackd_protocol::agent::EventName;
use serde_json::json;

fn set(bench: &mut Bench, provider: &str, id: &str) -> Result<Value, String> {
    let body = json!({ "type": "set_model", "provider": provider, "modelId": id });
    let number = bench.send(body);
    bench.answered(number)
}

fn reopened(bench: &Bench) -> Bench {
    let transcript = Transcript::read(bench.file().as_bytes()).unwrap();
    Bench::with(AgentSettings::default(), transcript)
}

#[test]
fn an_answer_belongs_to_the_model_of_its_request() {
    let mut bench = Bench::new();
    bench.prompt("hello");
    bench.head(200);
    set(&mut bench, "fake", "two").unwrap();
    bench.bytes(&chunk(&json!({ "content": "hi" }), Some("stop")));
    assert_eq!(bench.event("message_start")["message"]["model"], "one");
    bench.part(Part::Done);
    assert_eq!(bench.event("message_end")["message"]["model"], "one");
    assert_eq!(reopened(&bench).agent.state()["model"]["id"], "two");
    // A failed answer as well.
    bench.prompt("again");
    set(&mut bench, "fake", "one").unwrap();
    bench.refuse(401, "no");
    assert_eq!(bench.event("message_end")["message"]["model"], "two");
    assert_eq!(reopened(&bench).agent.state()["model"]["id"], "one");
}

#[test]
fn a_summary_costs_the_price_of_the_model_that_writes_it() {
    let settings = AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() };
    let mut bench = Bench::with(settings, Transcript::new(header()));
    bench.prompt(&"lorem ipsum ".repeat(100));
    bench.say("first");
    bench.prompt("second");
    bench.say(&"long answer ".repeat(50));
    bench.agent.setup.models.models[1].price =
        Price::Known(ModelCost { input: 1000.0, ..ModelCost::default() });
    bench.send(json!({ "type": "compact" }));
    set(&mut bench, "fake", "two").unwrap();
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 9 } });
    bench.bytes(&chunk(&json!({ "content": "A summary." }), Some("stop")));
    bench.bytes(&format!("data: {usage}\n\n"));
    bench.part(Part::Done);
    while bench.agent.compaction.is_some() {
        bench.say("The rest, without counts.");
    }
    let cost = bench.agent.transcript.stats().cost;
    assert!((cost - 0.000_118).abs() < 1e-9, "{cost}");
}

#[test]
fn a_chosen_model_is_recorded_with_the_level() {
    let mut bench = Bench::new();
    bench.send(json!({ "type": "set_thinking_level", "level": "high" }));
    bench.send(json!({ "type": "set_session_name", "name": "n" }));
    set(&mut bench, "fake", "two").unwrap();
    let state = reopened(&bench).agent.state();
    assert_eq!((&state["model"]["id"], &state["thinkingLevel"]), (&json!("two"), &json!("high")));
}

#[test]
fn a_model_is_found_by_its_id_if_no_other_provider_has_the_same() {
    let mut bench = Bench::new();
    assert_eq!(set(&mut bench, "", "two").unwrap()["id"], "two");
    assert_eq!(set(&mut bench, "", "three"), Err("Model not found: three".into()));
    let other = ModelInfo { provider: "other".into(), ..model("two") };
    bench.agent.setup.models.models.push(other);
    let error = set(&mut bench, "", "two").unwrap_err();
    assert_eq!(error, "Several providers have this model; name one of them: fake/two, other/two");
    assert_eq!(set(&mut bench, "other", "two").unwrap()["provider"], "other");
}

#[test]
fn a_model_that_was_removed_during_a_turn_is_replaced_at_its_end() {
    let mut bench = Bench::new();
    bench.prompt("hello");
    let (models, default) = (vec![model("two")], model("two"));
    let models = AgentModels { models, default, thinking: ThinkingLevel::Off };
    bench.take(Input::Models(Box::new(models)));
    assert_eq!(bench.agent.state()["model"]["id"], "one");
    bench.say("hi");
    assert_eq!(bench.agent.state()["model"]["id"], "two");
    let event = bench.event("extension_error");
    assert_eq!((&event["extensionPath"], &event["event"]), (&json!("quackd"), &json!("models")));
    let text = "the model fake/one is not configured any more; the session uses fake/two";
    assert_eq!(event["error"], text);
    bench.prompt("next");
    assert_eq!(bench.request().1["model"], "two");
}

#[test]
fn patterns_name_models_in_their_order() {
    let models = ["sonnet-5", "haiku-5", "sonnet-4"].map(model);
    let of = |patterns: &[&str]| {
        let patterns: Vec<_> = patterns.iter().map(|it| (*it).to_owned()).collect();
        let found = super::super::model_names::scoped(&patterns, &models).into_iter();
        found.map(|(model, level)| (model.id, level)).collect::<Vec<_>>()
    };
    let high = Some(ThinkingLevel::High);
    assert_eq!(
        of(&["haiku:high", "*sonnet*"]),
        [("haiku-5".into(), high), ("sonnet-5".into(), None), ("sonnet-4".into(), None)]
    );
    assert_eq!(of(&["sonnet-4", "sonnet"]).len(), 2);
    assert_eq!(of(&["none"]), []);
}

#[test]
fn a_default_that_stands_in_for_a_retired_model_is_told_once_and_only_to_its_user() {
    let told = |bench: &Bench| -> Vec<Value> {
        let error = |effect: &Effect| match effect {
            Effect::Event { name: EventName::ExtensionError, data } => {
                Some(serde_json::from_str::<Value>(data.get()).unwrap()["error"].clone())
            }
            _ => None,
        };
        bench.effects.iter().filter_map(error).collect()
    };
    let text = "fake offers its usual model zero no more; one is used";
    let mut bench = Bench::new();
    bench.agent.setup.model_notice = Some(text.to_owned());
    bench.prompt("hello");
    assert_eq!(told(&bench), [text]);
    bench.say("hi");
    bench.prompt("again");
    bench.say("hi");
    assert_eq!(told(&bench), [text], "once");
    // Another model is in use.
    let mut bench = Bench::new();
    bench.agent.setup.model_notice = Some(text.to_owned());
    set(&mut bench, "fake", "two").unwrap();
    bench.prompt("hello");
    assert!(told(&bench).is_empty());
    // A conversation whose model is gone goes on with the default.
    let file = bench.file().replace(r#""modelId":"two""#, r#""modelId":"three""#);
    let transcript = Transcript::read(file.as_bytes()).unwrap();
    let mut bench = Bench::with(AgentSettings::default(), transcript);
    bench.prompt("hello");
    let gone = "the model fake/three is not configured any more; the session uses fake/one";
    assert_eq!(told(&bench), [gone]);
}
