//! Requests: the history, what goes back unchanged, and the differences of servers.

use super::{model, read, recording};
use crate::message::{
    AssistantMessage, BashExecution, Block, Content, CustomMessage, Message, StopReason, ToolCall,
    ToolResultMessage, Usage, UserMessage,
};
use crate::providers::{RequestOptions, StreamEnd, ToolSpec, clamp, levels, request};
use quackd_protocol::model::ModelApi::{self, *};
use quackd_protocol::model::{InputKind, ModelInfo, ThinkingLevel};
use serde_json::{Value, json};

fn user(text: &str) -> Message {
    Message::User(UserMessage { content: Content::Text(text.to_owned()), timestamp: 1 })
}

fn said(model: &ModelInfo, content: Vec<Block>) -> Message {
    Message::Assistant(AssistantMessage {
        content,
        api: model.api.name().to_owned(),
        provider: model.provider.clone(),
        model: model.id.clone(),
        usage: Usage::default(),
        stop_reason: StopReason::ToolUse,
        error_message: None,
        timestamp: 2,
        response_id: None,
        duration_ms: None,
        images_refused: false,
        raw_stop_reason: None,
    })
}

fn call(id: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.to_owned(), name: "read".to_owned(), ..ToolCall::default() })
}

fn result(id: &str, content: Vec<Block>) -> Message {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: "read".to_owned(),
        content,
        details: None,
        is_error: false,
        timestamp: 3,
    })
}

fn image() -> Block {
    Block::Image { data: "aGk=".to_owned(), mime_type: "image/png".to_owned() }
}

fn options(thinking: ThinkingLevel) -> RequestOptions<'static> {
    RequestOptions {
        system: "Be brief.",
        tools: &[],
        thinking,
        max_tokens: None,
        cache_key: "s-1",
        schema: None,
    }
}

fn body(model: &ModelInfo, messages: &[Message]) -> Value {
    let request = request(model, messages, &options(ThinkingLevel::Off));
    serde_json::from_str(request.body.get()).unwrap()
}

/// Messages of a body, without the system prompt.
fn sent(model: &ModelInfo, messages: &[Message]) -> Value {
    let body = body(model, messages);
    let all = body.get("messages").or_else(|| body.get("input")).unwrap().as_array().unwrap();
    let is_system = |it: &&Value| it["role"] == "system";
    all.iter().filter(|it| !is_system(it)).cloned().collect()
}

/// A recorded answer and its results, as the next request of its model has them.
fn replayed(api: ModelApi) -> Value {
    replayed_with(api, |_| {})
}

fn replayed_with(api: ModelApi, change: impl Fn(&mut Block)) -> Value {
    let model = model(api);
    let mut content = read(api, [recording(api)], StreamEnd::Complete).1.content;
    content.iter_mut().for_each(change);
    let ids: Vec<String> = content
        .iter()
        .filter_map(|block| match block {
            Block::ToolCall(call) => Some(call.id.clone()),
            _ => None,
        })
        .collect();
    let text = |text: &str| vec![Block::text(text)];
    let messages = [
        user("Hi"),
        said(&model, content),
        result(&ids[1], text("one")),
        result(&ids[0], vec![Block::text("two"), image()]),
    ];
    sent(&model, &messages)
}

#[test]
fn an_answer_of_completions_goes_back_as_it_came() {
    let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    let url = json!({"url": "data:image/png;base64,aGk="});
    let expected = json!([
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "I read it.\nGrüße, 世界 👋 — done",
            "reasoning_content": "First, look: the file’s name is naïve.txt 🦆.",
            "tool_calls": [
                call("c1", "read", json!({"path": "naïve 🦆.txt"})),
                call("c2", "bash", json!({"command": "echo \"a\\n\" && ls", "timeout": 5})),
                call("c3", "ls", json!({})),
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "one"},
        {"role": "tool", "tool_call_id": "c1", "content": "two"},
        {"role": "tool", "tool_call_id": "c3", "content": "No result provided"},
        {"role": "user", "content": [
            {"type": "text", "text": "Image from the tool read:"},
            {"type": "image_url", "image_url": url},
        ]},
    ]);
    assert_eq!(replayed(OpenAiCompletions), expected);
}

#[test]
fn an_answer_of_responses_goes_back_as_it_came() {
    let thinking = "First, look: the file’s name is naïve.txt 🦆.";
    let text = json!({"type": "output_text", "text": "I read it.\nGrüße, 世界 👋 — done", "annotations": []});
    let call = |id: &str, name: &str, arguments: Value| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments.to_string()});
    let output = |id: &str, output: Value| json!({"type": "function_call_output", "call_id": id, "output": output});
    let expected = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": thinking}], "encrypted_content": "E"},
        {"type": "message", "role": "assistant", "status": "completed", "id": "msg_1", "content": [text]},
        call("c1", "read", json!({"path": "naïve 🦆.txt"})),
        call("c2", "bash", json!({"command": "echo \"a\\n\" && ls", "timeout": 5})),
        call("c3", "ls", json!({})),
        output("c2", json!("one")),
        output("c1", json!([
            {"type": "input_text", "text": "two"},
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="},
        ])),
        output("c3", json!("No result provided")),
    ]);
    let encrypt = |block: &mut Block| {
        if let Block::Thinking { thinking_signature: Some(signature), .. } = block {
            let mut item: Value = serde_json::from_str(signature).unwrap();
            item["encrypted_content"] = json!("E");
            *signature = item.to_string();
        }
    };
    assert_eq!(replayed_with(OpenAiResponses, encrypt), expected);
    // Without the encrypted content, the provider knows neither the reasoning nor what refers to it.
    let mut bare = expected;
    let items = bare.as_array_mut().unwrap();
    items.retain(|item| item["type"] != "reasoning");
    items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| drop(item.remove("id")));
    assert_eq!(replayed(OpenAiResponses), bare);
}

#[test]
fn what_a_provider_hides_in_an_answer_goes_back_to_it() {
    let signed = |signature: Option<&str>| {
        Block::ToolCall(ToolCall {
            id: "1".to_owned(),
            name: "read".to_owned(),
            thought_signature: signature.map(str::to_owned),
            ..ToolCall::default()
        })
    };
    let of = |id: &str| ModelInfo { id: id.to_owned(), ..model(OpenAiCompletions) };
    let signatures = |model: &ModelInfo, blocks: Vec<Block>, by: &ModelInfo| {
        let calls = sent(model, &[user("a"), said(by, blocks)])[1]["tool_calls"].clone();
        let at = |call: &Value| call.pointer("/extra_content/google/thought_signature").cloned();
        calls.as_array().unwrap().iter().map(at).collect::<Vec<_>>()
    };
    let (new, old) = (of("gemini-3.8-flash"), of("gemini-2.5-flash"));
    let (own, skip) = (Some(json!("S")), Some(json!("skip_thought_signature_validator")));
    assert_eq!(signatures(&new, vec![signed(Some("S")), signed(None)], &new), [own, None]);
    assert_eq!(signatures(&new, vec![signed(Some("S")), signed(None)], &old), [skip, None]);
    assert_eq!(signatures(&old, vec![signed(None)], &new), [None]);

    let details = json!([{"type": "reasoning.encrypted", "data": "E", "index": 0}]);
    let thinking = |signature: String| Block::Thinking {
        thinking: String::new(),
        thinking_signature: Some(signature),
        redacted: false,
    };
    let router = of("google/gemini-3.8-flash");
    let answer = said(&router, vec![thinking(details.to_string()), signed(None)]);
    assert_eq!(sent(&router, &[user("a"), answer.clone()])[1]["reasoning_details"], details);
    assert_eq!(sent(&old, &[user("a"), answer])[1].get("reasoning_details"), None);

    let mut deepseek = of("deepseek-v4-pro");
    deepseek.base_url = "https://api.deepseek.com/v1".to_owned();
    let message = sent(&deepseek, &[user("a"), said(&old, vec![signed(None)])])[1].clone();
    assert_eq!(message["reasoning_content"], json!(""));
}

#[test]
fn off_is_the_lowest_effort_that_a_model_of_openai_has() {
    let effort = |api, id: &str, base_url: &str| {
        let base_url = base_url.to_owned();
        let body = body(&ModelInfo { id: id.to_owned(), base_url, ..model(api) }, &[user("Hi")]);
        let at = ["/reasoning/effort", "/reasoning_effort"];
        at.iter().find_map(|at| body.pointer(at)).and_then(Value::as_str).map(str::to_owned)
    };
    let (openai, other) = ("https://api.openai.com/v1", "http://127.0.0.1:1/v1");
    for (id, expected) in [
        ("gpt-5.6-sol", Some("none")),
        ("gpt-6-mini", Some("none")),
        ("gpt-5-mini", Some("minimal")),
        ("o3", None),
    ] {
        assert_eq!(effort(OpenAiResponses, id, other).as_deref(), expected, "{id}");
        assert_eq!(effort(OpenAiCompletions, id, openai).as_deref(), expected, "{id}");
        assert_eq!(effort(OpenAiCompletions, id, other), None, "{id}");
    }
}

#[test]
fn an_answer_of_anthropic_goes_back_as_it_came() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}});
    let result = |id: &str, content: Value, is_error: bool| json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error});
    let mut last = result("toolu_c3", json!([text("No result provided")]), true);
    last["cache_control"] = json!({"type": "ephemeral"});
    let expected = json!([
        {"role": "user", "content": [text("Hi")]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "First, look: the file’s name is naïve.txt 🦆.", "signature": "c2lnbmF0dXJl"},
            text("I read it.\nGrüße, 世界 👋 — done"),
            {"type": "tool_use", "id": "toolu_c1", "name": "read", "input": {"path": "naïve 🦆.txt"}},
            {"type": "tool_use", "id": "toolu_c2", "name": "bash", "input": {"command": "echo \"a\\n\" && ls", "timeout": 5}},
            {"type": "tool_use", "id": "toolu_c3", "name": "ls", "input": {}},
        ]},
        {"role": "user", "content": [
            result("toolu_c2", json!([text("one")]), false),
            result("toolu_c1", json!([text("two"), image]), false),
            last,
        ]},
    ]);
    assert_eq!(replayed(AnthropicMessages), expected);
}

#[test]
fn after_a_change_of_model_reasoning_is_text_and_ids_fit() {
    let mut other = model(OpenAiResponses);
    other.id = "other".to_owned();
    let thinking = |signature: &str, redacted: bool| Block::Thinking {
        thinking: "hm".to_owned(),
        thinking_signature: Some(signature.to_owned()),
        redacted,
    };
    let id = format!("call.1{}|fc_9", "x".repeat(80));
    let history = [
        said(&other, vec![thinking("{}", false), thinking("z", true), call(&id), call("call_0")]),
        result("call_0", vec![Block::text("a")]),
        result(&id, vec![Block::text("b")]),
        said(&other, vec![call("call_0")]),
    ];
    for (api, length) in [(OpenAiCompletions, 40), (OpenAiResponses, 64), (AnthropicMessages, 64)] {
        let text = sent(&model(api), &history).to_string();
        let long = format!("call_1{}", "x".repeat(length - 6));
        assert_eq!(text.matches(&format!("\"{long}\"")).count(), 2, "{text}");
        assert_eq!(text.matches("\"call_0\"").count(), 2, "{text}");
        assert_eq!(text.matches("\"call_02\"").count(), 2, "{text}");
        assert_eq!(text.matches("\"hm\"").count(), 1, "{text}");
        for absent in ["fc_9", "redacted", "signature", "reasoning"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }
    let mut mistral = model(OpenAiCompletions);
    mistral.base_url = "https://api.mistral.ai/v1".to_owned();
    let sent = sent(&mistral, &history);
    let id = |at: &str| sent.pointer(at).unwrap().as_str().unwrap().to_owned();
    let long = id("/0/tool_calls/0/id");
    assert!(long.len() == 9 && long.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(long, id("/2/tool_call_id"));
    assert_eq!(id("/2/name"), "read");
    assert_ne!(id("/0/tool_calls/1/id"), id("/3/tool_calls/0/id"));
}

#[test]
fn messages_that_failed_and_results_without_a_call_are_left_out() {
    let model = model(OpenAiCompletions);
    let mut failed = said(&model, vec![call("f")]);
    if let Message::Assistant(message) = &mut failed {
        message.stop_reason = StopReason::Aborted;
    }
    let history = [
        result("nowhere", vec![Block::text("x")]),
        user("a"),
        failed,
        result("f", vec![Block::text("x")]),
        user(" "),
        user("b"),
        said(&model, vec![Block::text(" \n")]),
        said(&model, vec![call("1")]),
        user("c"),
        result("1", Vec::new()),
        result("1", vec![Block::text("twice")]),
        Message::Other(json!({"role": "system", "content": "x"})),
    ];
    let calls =
        json!([{"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]);
    let expected = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "[The user interrupted this turn.]"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": null, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "(no output)"},
        {"role": "user", "content": "c"},
    ]);
    assert_eq!(sent(&model, &history), expected);
}

#[test]
fn commands_summaries_and_custom_messages_are_texts_of_the_user() {
    let command = |exclude: Option<bool>| {
        Message::BashExecution(BashExecution {
            command: "make".to_owned(),
            output: "oops\n".to_owned(),
            exit_code: Some(2),
            cancelled: false,
            truncated: true,
            full_output_path: Some("/tmp/x".to_owned()),
            exclude_from_context: exclude,
            timestamp: 1,
        })
    };
    let summary = |summary: &str| Message::CompactionSummary {
        summary: summary.to_owned(),
        tokens_before: 5,
        timestamp: 1,
    };
    let branch = Message::BranchSummary { summary: "B".into(), from_id: "0".into(), timestamp: 1 };
    let custom = Message::Custom(CustomMessage {
        custom_type: "t".to_owned(),
        content: Content::Blocks(vec![Block::text("C"), image()]),
        display: false,
        details: None,
        timestamp: 1,
    });
    let mut model = model(OpenAiCompletions);
    model.input = vec![InputKind::Text];
    let history = [summary("A"), branch, command(None), command(Some(true)), custom];
    let expected = "This summary replaces the earlier part of the conversation:\n\n\
        <summary>\nA\n</summary>\n\n\
        This is a summary of another branch of the conversation, which the user left:\n\n\
        <summary>\nB\n</summary>\n\n\
        The user ran a command:\n\n```\n$ make\noops\n```\n\nThe exit code was 2.\n\n\
        The output is incomplete. All of it is in /tmp/x.\n\n\
        C\n\n(image left out: this model accepts text only)";
    assert_eq!(sent(&model, &history), json!([{"role": "user", "content": expected}]));
}

#[test]
fn the_rest_of_a_request_follows_api_server_and_level() {
    let tools = [ToolSpec {
        name: "read".to_owned(),
        description: "Reads".to_owned(),
        parameters: json!({"type": "object"}),
    }];
    let ask = |model: &ModelInfo, thinking| {
        let options = RequestOptions { tools: &tools, ..options(thinking) };
        let request = request(model, &[user("Hi")], &options);
        (serde_json::from_str::<Value>(request.body.get()).unwrap(), request.betas)
    };
    let schema = json!({"type": "object"});

    let (mut chat, betas) = ask(&model(OpenAiCompletions), ThinkingLevel::Low);
    assert_eq!(chat["messages"].take()[0], json!({"role": "system", "content": "Be brief."}));
    let function = json!({"name": "read", "description": "Reads", "parameters": schema});
    let expected = json!({
        "model": "fake-1", "messages": null, "stream": true, "max_tokens": 32_000, "reasoning_effort": "low",
        "stream_options": {"include_usage": true}, "tools": [{"type": "function", "function": function}],
    });
    assert_eq!((chat, betas.len()), (expected, 0));
    let mut openai = model(OpenAiCompletions);
    openai.base_url = "https://api.openai.com/v1".to_owned();
    let (chat, _) = ask(&openai, ThinkingLevel::Off);
    let expected = json!(["developer", 32_000, false, null, null]);
    let chat_has = [
        "/messages/0/role",
        "/max_completion_tokens",
        "/store",
        "/max_tokens",
        "/reasoning_effort",
    ];
    assert_eq!(
        chat_has.map(|at| chat.pointer(at).cloned()).into_iter().collect::<Value>(),
        expected
    );
    let (mut responses, _) = ask(&model(OpenAiResponses), ThinkingLevel::High);
    responses["input"].take();
    let expected = json!({
        "model": "fake-1", "input": null, "stream": true, "store": false, "max_output_tokens": 32_000,
        "prompt_cache_key": "s-1", "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "function", "name": "read", "description": "Reads", "parameters": schema, "strict": false}],
    });
    assert_eq!(responses, expected);

    let (mut anthropic, betas) = ask(&model(AnthropicMessages), ThinkingLevel::High);
    anthropic["messages"].take();
    let expected = json!({
        "model": "fake-1", "messages": null, "stream": true, "max_tokens": 40_000,
        "thinking": {"type": "enabled", "budget_tokens": 16_384},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "read", "description": "Reads", "input_schema": schema}],
    });
    assert_eq!((anthropic, betas.len()), (expected, 2));
    let mut small = model(AnthropicMessages);
    small.max_tokens = 2000;
    let (anthropic, _) = ask(&small, ThinkingLevel::High);
    assert_eq!((&anthropic["max_tokens"], anthropic.get("thinking")), (&json!(2000), None));
    small.id = "claude-opus-4-6".to_owned();
    let (anthropic, _) = ask(&small, ThinkingLevel::Xhigh);
    assert_eq!(anthropic["thinking"], json!({"type": "adaptive"}));
    assert_eq!(anthropic["output_config"], json!({"effort": "max"}));
}

#[test]
fn levels_are_those_that_the_model_has() {
    let highest = |api: ModelApi, id: &str| {
        let model = ModelInfo { id: id.to_owned(), ..model(api) };
        assert_eq!(levels(&model).last(), Some(&clamp(ThinkingLevel::Xhigh, &model)));
        clamp(ThinkingLevel::Xhigh, &model)
    };
    let (high, xhigh) = (ThinkingLevel::High, ThinkingLevel::Xhigh);
    assert_eq!(highest(OpenAiResponses, "gpt-5.2"), xhigh);
    assert_eq!(highest(OpenAiCompletions, "openai/gpt-5.1-codex-max"), xhigh);
    assert_eq!(highest(OpenAiResponses, "gpt-5-2025-08-07"), high);
    assert_eq!(highest(OpenAiResponses, "gpt-5.1"), high);
    assert_eq!(highest(AnthropicMessages, "claude-opus-4-6"), xhigh);
    assert_eq!(highest(AnthropicMessages, "claude-opus-4-20250514"), high);
    assert_eq!(highest(AnthropicMessages, "claude-3-7-sonnet-20250219"), high);
    let plain = ModelInfo { reasoning: false, ..model(OpenAiResponses) };
    assert_eq!(
        (levels(&plain), clamp(high, &plain)),
        (vec![ThinkingLevel::Off], ThinkingLevel::Off)
    );
}

#[test]
fn a_schema_goes_where_each_api_has_it() {
    let strict = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "required": ["a"], "additionalProperties": false});
    let loose = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let ask = |api, schema: &Value| {
        let options = RequestOptions { schema: Some(schema), ..options(ThinkingLevel::Off) };
        let request = request(&model(api), &[user("Hi")], &options);
        serde_json::from_str::<Value>(request.body.get()).unwrap()
    };
    for (schema, is_strict) in [(&strict, true), (&loose, false)] {
        let chat = &ask(OpenAiCompletions, schema)["response_format"]["json_schema"];
        assert_eq!((&chat["schema"], &chat["strict"]), (schema, &json!(is_strict)));
        let responses = &ask(OpenAiResponses, schema)["text"]["format"];
        assert_eq!((&responses["schema"], &responses["strict"]), (schema, &json!(is_strict)));
        assert_eq!(responses["type"], "json_schema");
        let anthropic = &ask(AnthropicMessages, schema)["output_config"]["format"];
        assert_eq!(anthropic, &json!({"type": "json_schema", "schema": schema}));
    }
}

#[test]
fn thinking_is_switched_in_the_words_of_the_server() {
    let ask = |model: &ModelInfo, level| {
        let request = request(model, &[user("Hi")], &options(level));
        serde_json::from_str::<Value>(request.body.get()).unwrap()
    };
    let kind = |name: &str| json!({ "type": name });
    for (format, member, on, off, has_effort) in [
        ("zai", "thinking", kind("enabled"), kind("disabled"), false),
        ("deepseek", "thinking", kind("enabled"), kind("disabled"), true),
        ("openrouter", "reasoning", json!({"effort": "high"}), json!({"effort": "none"}), false),
        ("together", "reasoning", json!({"enabled": true}), json!({"enabled": false}), true),
        ("qwen", "enable_thinking", json!(true), json!(false), false),
    ] {
        let mut model = model(OpenAiCompletions);
        model.compat.thinking_format = Some(format.to_owned());
        for (level, expected) in [(ThinkingLevel::High, on), (ThinkingLevel::Off, off)] {
            let chat = ask(&model, level);
            assert_eq!(chat[member], expected, "{format}");
            let effort = (has_effort && level == ThinkingLevel::High).then(|| json!("high"));
            assert_eq!(chat.get("reasoning_effort"), effort.as_ref(), "{format}");
        }
    }
    let mut template = model(OpenAiCompletions);
    template.compat.thinking_format = Some("qwen-chat-template".to_owned());
    let chat = ask(&template, ThinkingLevel::High);
    assert_eq!(chat["chat_template_kwargs"], json!({"enable_thinking": true}));
}
