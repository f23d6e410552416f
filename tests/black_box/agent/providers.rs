//! Every built-in provider, at its own address and with its own key: a turn with a tool, thinking on and off, the request
//! after the tool, an answer that a limit cuts, and an error. The providers are scripted servers behind a proxy that ends
//! the encryption; the shapes are those of the documents that each row names.

use super::{World, answer, command, only, turn};
use crate::harness::Wire;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// A provider and a model of it.
struct Row {
    provider: &'static str,
    model: &'static str,
    /// Host and path of its requests.
    host: &'static str,
    path: &'static str,
    /// Header with the key. Empty for a server without one.
    key: &'static str,
    /// Members of the scripted first answer besides reasoning and a call.
    extra: Value,
    /// Members of the request with thinking on, and with thinking off, by their JSON pointers. `null`: absent.
    on: Value,
    off: Value,
    /// Parts of the second request, which return what the first answer had.
    returned: &'static [&'static str],
}

/// The row of a provider with chat completions that knows `reasoning_effort`.
fn chat(
    provider: &'static str,
    model: &'static str,
    host: &'static str,
    path: &'static str,
) -> Row {
    Row {
        provider,
        model,
        host,
        path,
        key: "authorization",
        extra: json!({}),
        on: json!({"/reasoning_effort": "high"}),
        off: json!({"/reasoning_effort": null}),
        returned: &[],
    }
}

fn rows() -> Vec<Row> {
    let mut rows = openai_anthropic_and_openrouter();
    rows.extend(other_rows());
    rows
}

fn openai_anthropic_and_openrouter() -> Vec<Row> {
    let chat_completions = "/v1/chat/completions";
    vec![
        // <https://platform.openai.com/docs/api-reference/chat/create>: a model that does not reason.
        Row {
            on: json!({"/reasoning_effort": null, "/store": false, "/max_completion_tokens": 16384}),
            ..chat("openai", "gpt-4o-mini", "api.openai.com", chat_completions)
        },
        // <https://platform.openai.com/docs/guides/reasoning>: reasoning items are returned encrypted, because nothing is
        // stored.
        Row {
            extra: json!({"encrypted": "c2VjcmV0"}),
            on: json!({"/reasoning/effort": "high", "/include/0": "reasoning.encrypted_content", "/store": false}),
            off: json!({"/reasoning/effort": "minimal"}),
            returned: &["\"encrypted_content\":\"c2VjcmV0\"", "\"type\":\"function_call_output\""],
            ..chat("openai", "gpt-5", "api.openai.com", "/v1/responses")
        },
        Row {
            on: json!({"/reasoning/effort": "high"}),
            off: json!({"/reasoning/effort": "none"}),
            ..chat("openai", "gpt-5.6-sol", "api.openai.com", "/v1/responses")
        },
        // <https://platform.claude.com/docs/en/build-with-claude/extended-thinking>: thinking before a call goes back with
        // its signature.
        Row {
            key: "x-api-key",
            on: json!({"/thinking/type": "enabled", "/thinking/budget_tokens": 16384}),
            off: json!({"/thinking": null}),
            returned: &["\"signature\":\"c2lnbmF0dXJl\"", "\"type\":\"tool_result\""],
            ..chat("anthropic", "claude-sonnet-4-5", "api.anthropic.com", "/v1/messages")
        },
        // <https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking>
        Row {
            key: "x-api-key",
            on: json!({"/thinking/type": "adaptive", "/output_config/effort": "high"}),
            off: json!({"/thinking/budget_tokens": null, "/output_config": null}),
            ..chat("anthropic", "claude-opus-5-5", "api.anthropic.com", "/v1/messages")
        },
        // <https://openrouter.ai/docs/use-cases/reasoning-tokens>: the details go back as they came.
        Row {
            extra: json!({"extra_delta": {"reasoning_details": [
                {"type": "reasoning.encrypted", "data": "b3Blbg==", "id": "r1", "index": 0}]}}),
            returned: &["\"data\":\"b3Blbg==\"", "\"cache_control\""],
            ..chat(
                "openrouter",
                "anthropic/claude-sonnet-4.5",
                "openrouter.ai",
                "/api/v1/chat/completions",
            )
        },
    ]
}

fn other_rows() -> Vec<Row> {
    let chat_completions = "/v1/chat/completions";
    vec![
        // <https://ai.google.dev/gemini-api/docs/thought-signatures>: a call without its signature is refused.
        Row {
            extra: json!({"call_extra": {"extra_content": {"google": {"thought_signature": "dGhvdWdodA=="}}}}),
            returned: &["\"thought_signature\":\"dGhvdWdodA==\""],
            ..chat(
                "google",
                "gemini-3.8-flash",
                "generativelanguage.googleapis.com",
                "/v1beta/openai/chat/completions",
            )
        },
        // <https://console.groq.com/docs/reasoning>: its field is `reasoning`.
        Row {
            extra: json!({"reasoning_field": "reasoning"}),
            returned: &["\"reasoning\":\"Think first.\""],
            ..chat("groq", "openai/gpt-oss-120b", "api.groq.com", "/openai/v1/chat/completions")
        },
        // <https://docs.mistral.ai/api/>: ids of calls have 9 letters and digits, and results name their tool.
        Row {
            on: json!({"/reasoning_effort": null, "/max_tokens": 16384}),
            ..chat("mistral", "mistral-large-latest", "api.mistral.ai", chat_completions)
        },
        // <https://docs.x.ai/docs/guides/reasoning>: the model decides itself.
        Row {
            on: json!({"/reasoning_effort": null}),
            ..chat("xai", "grok-4.5", "api.x.ai", chat_completions)
        },
        // <https://api-docs.deepseek.com/guides/thinking_mode>: reasoning goes back with the calls, and thinks by default.
        Row {
            on: json!({"/thinking/type": "enabled", "/reasoning_effort": "high"}),
            off: json!({"/thinking/type": "disabled", "/reasoning_effort": null}),
            returned: &["\"reasoning_content\":\"Think first.\""],
            ..chat("deepseek", "deepseek-v4-pro", "api.deepseek.com", chat_completions)
        },
        // <https://inference-docs.cerebras.ai/capabilities/reasoning>
        Row {
            extra: json!({"reasoning_field": "reasoning"}),
            ..chat("cerebras", "gpt-oss-120b", "api.cerebras.ai", chat_completions)
        },
        // <https://docs.ollama.com/openai>, <https://lmstudio.ai/docs/app/api/endpoints/openai>,
        // <https://github.com/ggml-org/llama.cpp/tree/master/tools/server>: no key.
        Row {
            key: "",
            extra: json!({"reasoning_field": "reasoning"}),
            ..chat("ollama", "qwen3", "", chat_completions)
        },
        Row { key: "", ..chat("lmstudio", "qwen3", "", chat_completions) },
        Row { key: "", ..chat("llama.cpp", "qwen3", "", chat_completions) },
    ]
}

/// Variables with keys, one for each provider with one.
const KEYS: [&str; 9] = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "OPENROUTER_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "XAI_API_KEY",
    "DEEPSEEK_API_KEY",
    "CEREBRAS_API_KEY",
];

#[test]
fn every_provider_has_a_turn_with_tools_thinking_a_second_request_a_limit_and_an_error() {
    let rows = rows();
    let models: Vec<&str> = rows.iter().map(|row| row.model).collect();
    let mut world = World::absent(&json!({"models": models}));
    std::fs::write(world.agent.join("models.json"), own_models(&world.model.v1()).to_string())
        .unwrap();
    std::fs::write(world.agent.join("settings.json"), super::fast().to_string()).unwrap();
    let mut hosts: Vec<String> =
        rows.iter().map(|row| row.host.to_owned()).filter(|host| !host.is_empty()).collect();
    hosts.dedup();
    let server = world.model.root().rsplit_once(':').unwrap().1.parse().unwrap();
    let trusted = world.daemon.home().join("authority.pem");
    let proxy = internet(hosts, server, &trusted);
    let mut variables: Vec<String> = KEYS.map(|key| format!("{key}=sk-of-{key}")).into();
    variables.push(format!("HTTPS_PROXY=http://127.0.0.1:{proxy}"));
    variables.push(format!("SSL_CERT_FILE={}", trusted.display()));
    let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
    world.boot(&variables);
    for (n, row) in rows.iter().enumerate() {
        let repo = world.daemon.repo(&format!("repo-{n}"));
        let wire = world.daemon.wire();
        wire.attach(repo.path());
        wire.request("follow", json!({}));
        wire.request(
            "quack.session_set",
            json!({"model": format!("{}/{}", row.provider, row.model)}),
        );
        tools_and_thinking(&world, row, &wire, &models);
        failures(&world, row, &wire, &models);
    }
}

/// `models.json` of Pi: local servers at this address, and models of which no table says that they reason.
fn own_models(base: &str) -> Value {
    let local =
        json!({"baseUrl": base, "apiKey": "none", "models": [{"id": "qwen3", "reasoning": true}]});
    let reasons = |id: &str| {
        let overrides: serde_json::Map<_, _> =
            [(id.to_owned(), json!({"reasoning": true}))].into_iter().collect();
        json!({ "modelOverrides": overrides })
    };
    json!({"providers": {
        "ollama": local, "lmstudio": local, "llama.cpp": local,
        "openai": reasons("gpt-5.6-sol"),
        "openrouter": reasons("anthropic/claude-sonnet-4.5"),
        "groq": reasons("openai/gpt-oss-120b"),
        "cerebras": reasons("gpt-oss-120b"),
    }})
}

/// Checks members of a request by their JSON pointers.
#[track_caller]
fn assert_members(body: &Value, expected: &Value, row: &Row) {
    for (at, value) in expected.as_object().unwrap() {
        let found = body.pointer(at).cloned().unwrap_or_default();
        assert_eq!(found, *value, "{}/{} {at}", row.provider, row.model);
    }
}

#[track_caller]
fn tools_and_thinking(world: &World, row: &Row, wire: &Wire, models: &[&str]) {
    let name = format!("{}/{}", row.provider, row.model);
    let call = json!({"name": "bash", "arguments": {"command": "echo from the tool"}});
    let mut first = json!({"reasoning": "Think first.", "tool_calls": [call]});
    first.as_object_mut().unwrap().extend(row.extra.as_object().unwrap().clone());
    world.model.script(
        &json!({"models": models, "replies": [first, {"text": "Done."}, {"text": "Plain."}]}),
    );
    let begin = world.model.requests().len();
    command(wire, json!({"type": "set_thinking_level", "level": "high"}));
    let events = turn(wire, "go");
    assert_eq!(super::text(answer(&events)), "Done.", "{name}");
    let end = only(&events, "tool_execution_end");
    assert!(super::text(&end["result"]).starts_with("from the tool\n"), "{name}: {end}");
    command(wire, json!({"type": "set_thinking_level", "level": "off"}));
    assert_eq!(super::text(answer(&turn(wire, "again"))), "Plain.", "{name}");
    let requests = world.model.requests().split_off(begin);
    assert_eq!(requests.len(), 3, "{name}");
    for request in &requests {
        assert_eq!(request["path"], row.path, "{name}");
        let (headers, body) = (&request["headers"], &request["body"]);
        match row.key {
            "" => assert!(headers.get("authorization").is_none(), "{name}: {headers}"),
            key => {
                assert_eq!(headers["host"], row.host, "{name}");
                assert_eq!(headers[key], "<redacted>", "{name}: the key is sent");
            }
        }
        assert_eq!((&body["model"], &body["stream"]), (&json!(row.model), &json!(true)), "{name}");
        assert!(!body["tools"].as_array().unwrap().is_empty(), "{name}");
    }
    assert_members(&requests[0]["body"], &row.on, row);
    assert_members(&requests[2]["body"], &row.off, row);
    let second = requests[1]["body"].to_string();
    assert!(second.contains("from the tool"), "{name}: {second}");
    for part in row.returned {
        assert!(second.contains(part), "{name}: no {part} in {second}");
    }
    if row.provider == "mistral" {
        let result = &requests[1]["body"]["messages"][3];
        assert_eq!(result["tool_call_id"].as_str().map(str::len), Some(9), "{second}");
        assert_eq!(result["name"], "bash", "{second}");
    }
}

#[track_caller]
fn failures(world: &World, row: &Row, wire: &Wire, models: &[&str]) {
    let name = format!("{}/{}", row.provider, row.model);
    let half = json!({"text": "half an", "finish_reason": "length"});
    let refused =
        json!({"status": 401, "error": {"message": "no such key", "type": "authentication_error"}});
    world.model.script(&json!({"models": models, "replies": [half, refused]}));
    let begin = world.model.requests().len();
    let events = turn(wire, "write much");
    assert_eq!(only(&events, "agent_end")["reason"], "length", "{name}");
    assert_eq!(super::text(answer(&events)), "half an", "{name}");
    let events = turn(wire, "fail");
    let error = answer(&events)["errorMessage"].as_str().unwrap_or_default();
    assert!(error.contains("401") && error.contains("no such key"), "{name}: {error}");
    assert_eq!(world.model.requests().len(), begin + 2, "{name}: an error of the key is final");
}

/// Starts a proxy that ends the encryption of connections to these hosts and passes their requests on to a server of this
/// machine. Returns its port. Its certificate is written to `trusted`.
fn internet(hosts: Vec<String>, server: u16, trusted: &Path) -> u16 {
    let made = rcgen::generate_simple_self_signed(hosts).unwrap();
    std::fs::write(trusted, made.cert.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![made.cert.der().clone()],
            PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
        )
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || {
                // A client that leaves, such as one that gave up its request, is not awaited.
                let _ended = pass_on(stream, &config, server);
            });
        }
    });
    port
}

fn pass_on(mut stream: TcpStream, config: &Arc<ServerConfig>, server: u16) -> std::io::Result<()> {
    let (head, _) = request(&mut BufReader::with_capacity(1, &stream))?;
    assert!(head.starts_with("CONNECT "), "{head}");
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let connection = ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
    let mut client = BufReader::new(StreamOwned::new(connection, stream));
    let (head, body) = request(&mut client)?;
    let mut upstream = TcpStream::connect(("127.0.0.1", server))?;
    // The server closes the connection after its answer.
    upstream.write_all(head.replacen("HTTP/1.1", "HTTP/1.0", 1).as_bytes())?;
    upstream.write_all(&body)?;
    let mut piece = [0; 4096];
    let client = client.get_mut();
    while let n @ 1.. = upstream.read(&mut piece)? {
        client.write_all(&piece[..n])?;
        client.flush()?;
    }
    client.conn.send_close_notify();
    client.flush()?;
    client.sock.shutdown(Shutdown::Both)
}

/// Reads a request: its head and its body.
fn request(reader: &mut impl BufRead) -> std::io::Result<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok((head, body))
}
