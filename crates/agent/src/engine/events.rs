//! Events for clients, with the names and members of Pi's protocol. `message_update` has the delta only: a reader that
//! has all deltas has the message.

use super::Agent;
use crate::message::{AssistantMessage, Message, ToolCall, ToolResultMessage};
use crate::providers::Delta;
use quackd_protocol::agent::EventName;
use quackd_protocol::model::EndReason;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Serialize)]
struct MessageEvent<'a> {
    #[serde(rename = "type")]
    kind: EventName,
    message: &'a Message,
}

#[derive(Serialize)]
struct TurnEnd<'a> {
    #[serde(rename = "type")]
    kind: EventName,
    message: &'a Message,
    #[serde(rename = "toolResults")]
    tool_results: &'a [Message],
}

#[derive(Serialize)]
struct AgentEnd<'a> {
    #[serde(rename = "type")]
    kind: EventName,
    messages: &'a [Message],
    #[serde(rename = "willRetry")]
    will_retry: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<EndReason>,
}

#[derive(Serialize)]
struct Update<'a> {
    #[serde(rename = "type")]
    kind: EventName,
    message: Role,
    #[serde(rename = "assistantMessageEvent")]
    event: DeltaEvent<'a>,
}

#[derive(Serialize)]
struct Role {
    role: &'static str,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeltaEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    content_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call: Option<CallBlock<'a>>,
}

#[derive(Serialize)]
struct CallBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    call: &'a ToolCall,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolStart<'a> {
    #[serde(rename = "type")]
    kind: EventName,
    tool_call_id: &'a str,
    tool_name: &'a str,
    args: &'a serde_json::Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolEnd<'a> {
    #[serde(rename = "type")]
    kind: EventName,
    tool_call_id: &'a str,
    tool_name: &'a str,
    result: Content<'a>,
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

#[derive(Serialize)]
struct Content<'a> {
    content: &'a [crate::message::Block],
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Value>,
}

impl Agent {
    pub(super) fn plain_event(&mut self, name: EventName) {
        self.event(name, &json!({ "type": name }));
    }

    /// Publishes the start of the agent's work, with the directory from which paths of tools are read.
    pub(super) fn agent_start(&mut self) {
        let kind = EventName::AgentStart;
        match self.directory.as_str() {
            "" => self.plain_event(kind),
            directory => {
                let data = json!({ "type": kind, "cwd": directory });
                self.event(kind, &data);
            }
        }
    }

    pub(super) fn message_start(&mut self, message: &Message) {
        self.event(
            EventName::MessageStart,
            &MessageEvent { kind: EventName::MessageStart, message },
        );
    }

    pub(super) fn message_end(&mut self, message: &Message) {
        self.event(EventName::MessageEnd, &MessageEvent { kind: EventName::MessageEnd, message });
    }

    pub(super) fn turn_end(&mut self, message: &AssistantMessage, results: &[Message]) {
        let message = &Message::Assistant(message.clone());
        self.event(
            EventName::TurnEnd,
            &TurnEnd { kind: EventName::TurnEnd, message, tool_results: results },
        );
    }

    pub(super) fn agent_end(&mut self, messages: &[Message], reason: Option<EndReason>) {
        let data = AgentEnd { kind: EventName::AgentEnd, messages, will_retry: false, reason };
        self.event(EventName::AgentEnd, &data);
    }

    pub(super) fn delta(&mut self, delta: &Delta) {
        let event = match delta {
            Delta::TextStart { content_index } => start("text_start", *content_index),
            Delta::ThinkingStart { content_index } => start("thinking_start", *content_index),
            Delta::TextDelta { content_index, delta } => {
                DeltaEvent { delta: Some(delta), ..start("text_delta", *content_index) }
            }
            Delta::ThinkingDelta { content_index, delta } => {
                DeltaEvent { delta: Some(delta), ..start("thinking_delta", *content_index) }
            }
            Delta::TextEnd { content_index, content } => {
                DeltaEvent { content: Some(content), ..start("text_end", *content_index) }
            }
            Delta::ThinkingEnd { content_index, content } => {
                DeltaEvent { content: Some(content), ..start("thinking_end", *content_index) }
            }
            Delta::ToolCallStart { content_index, id, name } => DeltaEvent {
                id: Some(id),
                tool_name: Some(name),
                ..start("toolcall_start", *content_index)
            },
            Delta::ToolCallDelta { content_index, delta } => {
                DeltaEvent { delta: Some(delta), ..start("toolcall_delta", *content_index) }
            }
            Delta::ToolCallEnd { content_index, tool_call } => DeltaEvent {
                tool_call: Some(CallBlock { kind: "toolCall", call: tool_call }),
                ..start("toolcall_end", *content_index)
            },
            Delta::Usage(_) => return,
        };

        let kind = EventName::MessageUpdate;
        self.event(kind, &Update { kind, message: Role { role: "assistant" }, event });
    }

    pub(super) fn tool_start(&mut self, call: &ToolCall) {
        let kind = EventName::ToolExecutionStart;
        let data = ToolStart {
            kind,
            tool_call_id: &call.id,
            tool_name: &call.name,
            args: &call.arguments,
        };
        self.event(kind, &data);
    }

    pub(super) fn tool_end(
        &mut self,
        result: &ToolResultMessage,
        exit_code: Option<i32>,
        duration_ms: Option<u64>,
    ) {
        let kind = EventName::ToolExecutionEnd;
        let data = ToolEnd {
            kind,
            tool_call_id: &result.tool_call_id,
            tool_name: &result.tool_name,
            result: Content { content: &result.content, details: result.details.as_ref() },
            is_error: result.is_error,
            exit_code,
            duration_ms,
        };
        self.event(kind, &data);
    }

    /// Publishes the complete queues, of which a client shows only the last state.
    pub(super) fn queue_event(&mut self) {
        let texts = |queue: &std::collections::VecDeque<crate::message::UserMessage>| {
            queue.iter().map(|message| message.content.text()).collect::<Vec<_>>()
        };
        let (steering, follow_up) = (texts(&self.steering), texts(&self.follow_up));
        let kind = EventName::QueueUpdate;
        self.event(kind, &json!({ "type": kind, "steering": steering, "followUp": follow_up }));
    }
}

fn start(kind: &'static str, content_index: usize) -> DeltaEvent<'static> {
    DeltaEvent { kind, content_index, ..DeltaEvent::default() }
}
