//! The models of quackd's own agent: which one is chosen, what a test sends, and that no key is shown.

use crate::harness::{Answer, Daemon, FakeExa, answer, wait_for};
use serde_json::{Value, json};
use std::fs;

const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// Key of the model provider.
const KEY: &str = "sk-hush-hush";

/// Starts a daemon with additional variables and a configuration.
#[track_caller]
fn daemon_with(variables: &[&str], config: &str) -> Daemon {
    let mut daemon = Daemon::absent();
    fs::create_dir(daemon.app()).unwrap();
    fs::write(daemon.app().join("quackd.toml"), config).unwrap();
    // The process of `env` becomes the daemon.
    daemon.boot_with("env", &[variables, &[QUACK, "daemon"]].concat());
    daemon
}

fn says(status: &str, body: &str) -> FakeExa {
    FakeExa::start(&[Answer::Says(answer(status, body))])
}

/// Returns the base URL of a fake provider.
fn base(fake: &FakeExa) -> String {
    fake.endpoint().replace("/search", "/v1")
}

fn models(daemon: &Daemon) -> Value {
    daemon.quack(&["models", "--json"]).json()
}

fn check(daemon: &Daemon) -> Value {
    let document = daemon.quack(&["doctor", "--json"]).json();
    let checks = document["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == "model").unwrap().clone()
}

/// Writes `models.json` of Pi.
fn write_pi_models(daemon: &Daemon, models: &Value) {
    let directory = daemon.home().join(".pi/agent");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("models.json"), models.to_string()).unwrap();
}

#[test]
fn without_a_model_the_user_learns_what_to_do() {
    let daemon = daemon_with(&[], "");
    let text = daemon.quack(&["models"]).ok();
    for part in ["OPENAI_API_KEY", "ollama", "model.base_url", "models.json"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(daemon.quack(&["models", "--test"]).code(), Some(1));
    let check = check(&daemon);
    assert_eq!(check["status"], "warn");
    assert!(check["hint"].as_str().unwrap().contains("OPENAI_API_KEY"), "{check}");
}

#[test]
fn a_test_sends_one_request_and_no_key_is_shown() {
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"}}]}\n\ndata: [DONE]\n\n";
    let provider = says("200 OK", stream);
    let base_url = format!("OPENAI_BASE_URL={}", base(&provider));
    let daemon = daemon_with(&[&base_url, &format!("OPENAI_API_KEY={KEY}")], "");
    let run = daemon.quack(&["models", "--test", "--json"]);
    let data = run.json();
    assert_eq!(
        (run.code(), &data["test"]["ok"], &data["test"]["text"]),
        (Some(0), &json!(true), &json!("ok"))
    );
    let chosen = &data["chosen"];
    assert_eq!(
        (&chosen["model"]["provider"], &chosen["model"]["id"]),
        (&json!("openai"), &json!("gpt-4o-mini"))
    );
    assert_eq!(
        (&chosen["why"], &chosen["keySource"]),
        (&json!("OPENAI_API_KEY is set"), &json!("OPENAI_API_KEY"))
    );
    let request = provider.request();
    assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1"), "{}", request.head);
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(body["model"], "gpt-4o-mini");
    assert_eq!(check(&daemon)["status"], "ok");
    assert!(daemon.quack(&["models"]).ok().contains("OPENAI_API_KEY is set"));
    for shown in [run.stdout(), daemon.log(), daemon.quack(&["doctor"]).stdout()] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[test]
fn the_providers_error_is_shown() {
    let provider = says("404 Not Found", r#"{"error":{"message":"no model m"}}"#);
    let config = format!("[model]\nbase_url = '{}'\nname = 'm'\nkey = '{KEY}'\n", base(&provider));
    let daemon = daemon_with(&[], &config);
    let run = daemon.quack(&["models", "--test"]);
    assert_eq!(run.code(), Some(1));
    assert!(run.stdout().contains("status 404: no model m"), "{run:?}");
    let wire = daemon.wire();
    let configured = wire.request("quack.config", json!({})).to_string();
    let shown = daemon.quack(&["config", "show"]).ok();
    assert!(shown.contains("model.key = \"(set)\""), "{shown}");
    for shown in [shown, configured, run.stdout(), daemon.log(), models(&daemon).to_string()] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[test]
fn the_model_of_the_configuration_wins_and_pis_settings_apply_without_it() {
    let key = format!("OPENAI_API_KEY={KEY}");
    let choice = |daemon: &Daemon| {
        let data = models(daemon);
        let model = &data["chosen"]["model"];
        format!("{}/{}", model["provider"].as_str().unwrap(), model["id"].as_str().unwrap())
    };
    let daemon = daemon_with(&[&key, "RUBBER_DUCK_PI_MODEL=gpt-5"], "");
    assert_eq!(choice(&daemon), "openai/gpt-5");
    let config = "[model]\nprovider = 'anthropic'\nname = 'claude-x'\n";
    let variables = [&*key, "ANTHROPIC_API_KEY=sk-ant-hush", "RUBBER_DUCK_PI_MODEL=gpt-5"];
    assert_eq!(choice(&daemon_with(&variables, config)), "anthropic/claude-x");
}

#[test]
fn a_change_of_pis_models_is_seen_without_a_restart() {
    let provider = says("200 OK", r#"{"data":[{"id":"listed"}]}"#);
    let daemon = daemon_with(&[], "environment.login_shell = false\n");
    assert_eq!(models(&daemon)["chosen"], Value::Null);
    let local =
        json!({"baseUrl": base(&provider), "apiKey": "ollama", "models": [{"id": "first"}]});
    write_pi_models(&daemon, &json!({"providers": {"box": local}}));
    wait_for("the model of the new file", || {
        (models(&daemon)["chosen"]["model"]["id"] == "first").then_some(())
    });
    let data = models(&daemon);
    let ids: Vec<&str> =
        data["models"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["first", "listed"], "the server is asked for its models");
    fs::write(daemon.home().join(".pi/agent/models.json"), "{\n\"providers\": [hush]}").unwrap();
    wait_for("the problem of the invalid file", || {
        let problem = models(&daemon)["problems"][0].as_str().unwrap_or_default().to_owned();
        (problem.contains("models.json:2:") && !problem.contains("hush")).then_some(())
    });
}

#[test]
fn facts_that_nobody_has_checked_for_90_days_are_listed_without_a_daemon() {
    let daemon = Daemon::absent();
    let stale = daemon.quack(&["models", "--stale", "--json"]).json();
    let rows = stale["stale"].as_array().expect("rows");
    for row in rows {
        assert!(row["days"].as_i64().is_none_or(|days| 90 < days), "{row}");
    }
    let text = daemon.quack(&["models", "--stale"]).ok();
    let first = rows.first().map_or("older than 90 days", |row| row["prefix"].as_str().unwrap());
    assert!(text.contains(first), "{text}");
    assert!(!daemon.socket().exists());
}

#[test]
fn keys_of_pis_files_that_are_not_used_are_listed_with_file_and_path() {
    let daemon = daemon_with(&[], "environment.login_shell = false\n");
    let compat = json!({"thinkingFormat": "deepseek", "openRouterRouting": {"only": ["x"]}});
    let model = json!({"id": "m", "thinkingLevelMap": {"off": null}, "compat": compat});
    let provider = json!({"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "x", "models": [model]});
    write_pi_models(&daemon, &json!({"providers": {"box": provider}}));
    let problem = |part: &str| {
        let data = models(&daemon);
        let problems = data["problems"].as_array().unwrap();
        problems.iter().filter_map(|it| it.as_str()).find(|it| it.contains(part)).map(str::to_owned)
    };
    let line = wait_for("the problem", || problem("models.json"));
    let keys = "models.json: quackd does not use providers.box.models[m].thinkingLevelMap, \
        providers.box.models[m].compat.openRouterRouting";
    assert!(line.contains(keys) && !line.contains("thinkingFormat"), "{line}");
    assert_eq!(problem("settings.json"), None);
    // A change of the settings is seen too.
    let settings = daemon.home().join(".pi/agent/settings.json");
    fs::write(settings, r#"{"theme": "dark", "retry": {"maxRetries": 1, "provider": {}}}"#)
        .unwrap();
    let line = wait_for("the settings", || problem("settings.json"));
    assert!(line.ends_with("settings.json: quackd does not use theme, retry.provider"), "{line}");
    let told = check(&daemon)["message"].to_string();
    assert!(told.contains("openRouterRouting") && told.contains("retry.provider"), "{told}");
}
