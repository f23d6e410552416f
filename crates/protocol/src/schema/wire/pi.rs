//! The shapes of what Pi prints and the daemon forwards, for the versions 0.55 to 1.5.
//!
//! No type stands behind them: the daemon forwards most of it unread. So they say what is always there, and
//! let everything else be: each version of Pi adds something.

use serde_json::{Value, json};

/// An open object: these properties, these of them always, and whatever else.
pub(super) fn open(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": true,
    })
}

/// The shapes that several events share, with their names.
pub(super) fn shared() -> [(&'static str, Value); 4] {
    [
        ("Message", message()),
        ("ContentBlock", content_block()),
        ("MessageDelta", message_delta()),
        ("PiToolResult", tool_result()),
    ]
}

fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

fn message() -> Value {
    let mut schema = open(
        json!({
            "role": text("`user`, `assistant`, `toolResult` or another one."),
            "content": {"description": "A text, or blocks.", "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"$ref": "#/$defs/ContentBlock"}},
            ]},
            "timestamp": {"description": "Milliseconds since 1970, or ISO 8601.", "type": ["number", "string"]},
            "stopReason": text("Of an assistant: `stop`, `length`, `toolUse`, `error`, `aborted` or another one."),
            "errorMessage": text("Why it failed."),
            "toolCallId": text("Of a tool's result."),
            "toolName": text("Of a tool's result."),
            "isError": {"type": "boolean", "description": "Of a tool's result."},
        }),
        &["role"],
    );
    describe(&mut schema, "One message of a conversation, as Pi has it.");
    schema
}

fn content_block() -> Value {
    let mut schema = open(
        json!({
            "type": text("`text`, `thinking`, `toolCall`, `image` or another one."),
            "text": text("Of `text`."),
            "thinking": text("Of `thinking`."),
            "id": text("Of `toolCall`."),
            "name": text("Of `toolCall`: the tool."),
            "arguments": {"description": "Of `toolCall`."},
            "data": text("Of `image`: base64."),
            "mimeType": text("Of `image`."),
        }),
        &["type"],
    );
    describe(&mut schema, "A part of a message.");
    schema
}

fn message_delta() -> Value {
    let mut schema = open(
        json!({
            "type": text("`text_start`, `text_delta`, `text_end`, and the same of `thinking` and `toolcall`."),
            "contentIndex": {"type": "integer", "minimum": 0, "description": "Which block of the message grows."},
            "delta": text("Of `…_delta`: what has come."),
            "content": text("Of `text_end` and `thinking_end`: the whole block."),
        }),
        &["type"],
    );
    describe(&mut schema, "How an answer of the model grows.");
    schema
}

fn tool_result() -> Value {
    let mut schema = open(
        json!({
            "content": {"type": "array", "items": {"$ref": "#/$defs/ContentBlock"}},
            // What this daemon's own tools tell has a type of its own, and is not to pass as Pi's.
            "details": {"type": ["object", "null"], "not": {"required": ["sessionId"]}},
        }),
        &["content"],
    );
    describe(&mut schema, "What a tool of Pi has said.");
    schema
}

fn describe(schema: &mut Value, about: &str) {
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), about.into());
    }
}

/// `tool_execution_update` of a tool that Pi runs itself.
pub(super) fn tool_update() -> Value {
    open(
        json!({
            "toolCallId": text("Pi's id of the call."),
            "toolName": text("The tool."),
            "args": {"description": "Its arguments."},
            "partialResult": {"$ref": "#/$defs/PiToolResult"},
            "delta": false,
        }),
        &["toolCallId", "toolName", "partialResult"],
    )
}

/// `tool_execution_end` of a tool that Pi runs itself.
pub(super) fn tool_end() -> Value {
    open(
        json!({
            "toolCallId": text("Pi's id of the call."),
            "toolName": text("The tool."),
            "result": {"$ref": "#/$defs/PiToolResult"},
            "isError": {"type": "boolean"},
            "exitCode": {"type": "integer"},
            "durationMs": {"type": "number", "minimum": 0},
        }),
        &["toolCallId", "toolName", "result", "isError"],
    )
}

/// The events that are Pi's alone: name, what it tells, data.
pub(super) fn events() -> impl Iterator<Item = (&'static str, &'static str, Value)> {
    conversation().into_iter().chain(upkeep())
}

fn conversation() -> Vec<(&'static str, &'static str, Value)> {
    let message = || json!({"$ref": "#/$defs/Message"});
    let messages = || json!({"type": "array", "items": {"$ref": "#/$defs/Message"}});
    let flag = || json!({"type": "boolean"});
    vec![
        ("agent_start", "Pi begins to work on a prompt.", open(json!({}), &[])),
        (
            "agent_end",
            "The turn is over: the last event of what `say` began.",
            open(json!({"messages": messages(), "willRetry": flag()}), &["messages"]),
        ),
        ("agent_settled", "Nothing more will come by itself.", open(json!({}), &[])),
        ("turn_start", "The model is asked.", open(json!({}), &[])),
        (
            "turn_end",
            "The model has answered and its tools have run.",
            open(json!({"message": message(), "toolResults": messages()}), &["message"]),
        ),
        (
            "message_start",
            "A message begins; also what was written to a session whose voice client answers.",
            open(json!({"message": message()}), &["message"]),
        ),
        (
            "message_update",
            "The answer grows.",
            open(
                json!({
                    "message": {
                        "description": "Its `role` only.",
                        "anyOf": [{"$ref": "#/$defs/Message"}],
                    },
                    "assistantMessageEvent": {"$ref": "#/$defs/MessageDelta"},
                }),
                &["message", "assistantMessageEvent"],
            ),
        ),
        (
            "message_end",
            "A message is complete.",
            open(json!({"message": message()}), &["message"]),
        ),
    ]
}

fn upkeep() -> Vec<(&'static str, &'static str, Value)> {
    let flag = || json!({"type": "boolean"});
    let number = || json!({"type": "number", "minimum": 0});
    let texts = || json!({"type": "array"});
    vec![
        (
            "auto_compaction_start",
            "The conversation is made shorter.",
            open(json!({"reason": text("Why.")}), &[]),
        ),
        (
            "auto_compaction_end",
            "It was made shorter, or not.",
            open(
                json!({"result": {"type": ["object", "null"]}, "aborted": flag(), "willRetry": flag(),
                    "errorMessage": text("Why not.")}),
                &["result"],
            ),
        ),
        (
            "auto_retry_start",
            "The model's provider has failed and will be asked again.",
            open(
                json!({"attempt": number(), "maxAttempts": number(), "delayMs": number(),
                    "errorMessage": text("How it has failed.")}),
                &["attempt"],
            ),
        ),
        (
            "auto_retry_end",
            "Asking again has helped, or was given up.",
            open(
                json!({"success": flag(), "attempt": number(), "finalError": text("The last failure.")}),
                &["success"],
            ),
        ),
        (
            "queue_update",
            "What waits to be told to the model.",
            open(json!({"steering": texts(), "followUp": texts()}), &[]),
        ),
    ]
}
