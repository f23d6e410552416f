//! Shapes of Pi's output that the daemon forwards, for the versions 0.55 to 1.5.
//!
//! There are no Rust types for them, because the daemon forwards most of it unread. The schemas list the fields that
//! are always present and allow any others, because each version of Pi adds some.

use serde_json::{Value, json};

/// Returns an open object: these properties, some of them required, and any others.
pub(super) fn open(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": true,
    })
}

/// Returns the shapes that several events share, with their names.
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
    describe(&mut schema, "One message of a conversation, in Pi's form.");
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
    describe(&mut schema, "A change of the model's answer.");
    schema
}

fn tool_result() -> Value {
    let mut schema = open(
        json!({
            "content": {"type": "array", "items": {"$ref": "#/$defs/ContentBlock"}},
            // Results of quackd's own tools have a separate type and must not match Pi's.
            "details": {"type": ["object", "null"], "not": {"required": ["sessionId"]}},
        }),
        &["content"],
    );
    describe(&mut schema, "Result of a tool of Pi.");
    schema
}

fn describe(schema: &mut Value, about: &str) {
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), about.into());
    }
}

/// Returns the schema of `tool_execution_update` for a tool that Pi runs itself.
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

/// Returns the schema of `tool_execution_end` for a tool that Pi runs itself.
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

/// Returns Pi's own events: name, description, data.
pub(super) fn events() -> impl Iterator<Item = (&'static str, &'static str, Value)> {
    conversation().into_iter().chain(upkeep())
}

fn conversation() -> Vec<(&'static str, &'static str, Value)> {
    let message = || json!({"$ref": "#/$defs/Message"});
    let messages = || json!({"type": "array", "items": {"$ref": "#/$defs/Message"}});
    let flag = || json!({"type": "boolean"});
    vec![
        ("agent_start", "The agent has started a turn.", open(json!({}), &[])),
        (
            "agent_end",
            "The turn has finished. This is the last event of a `say`.",
            open(json!({"messages": messages(), "willRetry": flag()}), &["messages"]),
        ),
        ("agent_settled", "The agent is idle until the next prompt.", open(json!({}), &[])),
        ("turn_start", "A request to the model has started.", open(json!({}), &[])),
        (
            "turn_end",
            "The model has answered and its tools have finished.",
            open(json!({"message": message(), "toolResults": messages()}), &["message"]),
        ),
        (
            "message_start",
            "A message has started. Also sent for a prompt to a session whose voice client answers.",
            open(json!({"message": message()}), &["message"]),
        ),
        (
            "message_update",
            "The model's answer has more text.",
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
            "Compaction of the conversation has started.",
            open(json!({"reason": text("Reason.")}), &[]),
        ),
        (
            "auto_compaction_end",
            "Compaction of the conversation has finished or failed.",
            open(
                json!({"result": {"type": ["object", "null"]}, "aborted": flag(), "willRetry": flag(),
                    "errorMessage": text("Reason for the failure.")}),
                &["result"],
            ),
        ),
        (
            "auto_retry_start",
            "The model's provider has failed, and the agent will retry.",
            open(
                json!({"attempt": number(), "maxAttempts": number(), "delayMs": number(),
                    "errorMessage": text("The failure.")}),
                &["attempt"],
            ),
        ),
        (
            "auto_retry_end",
            "The retry has succeeded, or the agent has given up.",
            open(
                json!({"success": flag(), "attempt": number(), "finalError": text("The last failure.")}),
                &["success"],
            ),
        ),
        (
            "queue_update",
            "Messages that wait for the model.",
            open(json!({"steering": texts(), "followUp": texts()}), &[]),
        ),
    ]
}
