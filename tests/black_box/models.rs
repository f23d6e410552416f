//! The models of quackd's own agent: which one is chosen, what a test sends, and that no key is shown.

use crate::harness::{Answer, Daemon, FakeExa, answer, wait_for};
use serde_json::{Value, json};
use std::fs;

/// Key of the model provider.
const KEY: &str = "sk-hush-hush";

/// Starts a daemon with additional variables and a configuration.
#[track_caller]
fn daemon_with(variables: &[&str], config: &str) -> Daemon {
    let mut daemon = Daemon::absent();
    daemon.configure(config);
    daemon.boot_in(variables);
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
    let chunk = r#"data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}"#;
    let provider = says("200 OK", &format!("{chunk}\n\ndata: [DONE]\n\n"));
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

/// Bodies with status 200 without the form of an API, and a part of the line about each.
const NO_ANSWERS: [(&str, &str, &str); 11] = [
    ("text/html", "<!doctype html><title>Welcome</title>", "an HTML page (Welcome) (text/html)"),
    ("text/event-stream", "", "an empty body"),
    ("application/json", "{}", "other JSON: {}"),
    ("application/json", "[]", "other JSON: []"),
    ("text/plain", "Ollama is running", "other text: Ollama is running (text/plain)"),
    ("application/json", r#"{"error":{"message":"token invalid"}}"#, "token invalid"),
    ("application/json", r#"{"code":401,"msg":"no"}"#, r#"other JSON: {"code":401,"msg":"no"}"#),
    ("image/png", "PNG", "other text: PNG (image/png)"),
    ("text/event-stream", "data: {}\n\ndata: [DONE]\n\n", "other text: data: {}"),
    ("text/event-stream", "data: {\"error\":\"full\"}\n\n", "full"),
    ("text/event-stream", "event: error\ndata: {\"a\":1}\n\n", r#"{"a":1}"#),
];

/// Answers of each API: one with a call, one with text, one without an end, and one without content.
const ANSWERS: [(&str, [&str; 4], &str); 3] = [
    (
        "openai-completions",
        [
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"read_file","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"hello"}}]}"#,
            r#"{"choices":[]}"#,
        ],
        "finish_reason",
    ),
    (
        "openai-responses",
        [
            r#"{"type":"response.completed","response":{"output":[{"type":"function_call","name":"read_file","arguments":"{}"}]}}"#,
            r#"{"type":"response.completed","response":{"output":[{"type":"message","content":[{"text":"hello"}]}]}}"#,
            r#"{"type":"response.output_text.delta","delta":"hello"}"#,
            r#"{"type":"response.created"}"#,
        ],
        "response.completed",
    ),
    (
        "anthropic-messages",
        [
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"read_file"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#,
            r#"{"type":"message_start","message":{}}"#,
        ],
        "stop_reason",
    ),
];

#[test]
fn a_test_passes_with_an_answer_of_the_api_only() {
    for (api, [call, text, endless, bare], end) in ANSWERS {
        let stop = match api {
            "anthropic-messages" => "data: {\"type\":\"message_stop\"}\n\n",
            _ => "data: [DONE]\n\n",
        };
        let mut cases: Vec<_> =
            NO_ANSWERS.map(|(of, body, shown)| (of, body.to_owned(), shown, 1)).into();
        let sse = "text/event-stream";
        let ends = format!("ends without {end}");
        cases.push((sse, format!("data: {call}\n\n{stop}"), "a call of read_file", 0));
        cases.push((sse, format!("data: {text}\n\n{stop}"), "ms: hello", 0));
        cases.push(("text/plain", format!("data: {text}\n\n{stop}"), "ms: hello", 0));
        cases.push((sse, format!("data: {endless}\n\n"), &*ends, 1));
        cases.push((sse, format!("data: {bare}\n\n"), "without text", 1));
        let reply = |(of, body, ..): &(&str, String, &str, i32)| {
            let length = body.len();
            let head = format!("content-type: {of}\r\ncontent-length: {length}");
            Answer::Says(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").into())
        };
        let provider = FakeExa::start(&cases.iter().map(reply).collect::<Vec<_>>());
        let config = format!(
            "[model]\nbase_url = '{}'\nname = 'm'\nkey = '{KEY}'\napi = '{api}'\n",
            base(&provider)
        );
        let daemon = daemon_with(&[], &config);
        for (_, body, shown, code) in &cases {
            let run = daemon.quack(&["models", "--test"]);
            let lines: Vec<_> = run
                .stdout()
                .lines()
                .filter(|it| it.starts_with("test "))
                .map(str::to_owned)
                .collect();
            assert_eq!((run.code(), lines.len()), (Some(*code), 1), "{api} {body}: {run:?}");
            let verdict = if *code == 0 { "ok after" } else { "failed after" };
            assert!(
                lines[0].contains(shown) && lines[0].contains(verdict),
                "{api} {body}: {lines:?}"
            );
        }
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
