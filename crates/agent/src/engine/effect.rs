//! Effects: the work of the driver. [`super::Agent::handle`] returns them in their order.

use quackd_protocol::agent::{AgentToolCall, EventName};
use quackd_protocol::model::ModelRequest;
use serde_json::value::RawValue;

/// Work of the driver that the engine cannot do itself, such as input and output.
#[derive(Debug)]
pub enum Effect {
    /// Answer a command.
    Answer {
        /// Number of the command.
        number: u64,
        /// Data of the answer, or the text of the error.
        result: Result<Option<Box<RawValue>>, String>,
    },
    /// Publish an event.
    Event {
        /// Name of the event.
        name: EventName,
        /// The whole object.
        data: Box<RawValue>,
    },
    /// Append to the session file, before any later effect.
    Append(String),
    /// Send a request to a model.
    Request(Box<ModelRequest>),
    /// Give up a request.
    CancelRequest {
        /// Number of the request.
        number: u64,
    },
    /// Call a tool.
    Call(Box<AgentToolCall>),
    /// Stop a tool call.
    CancelCall {
        /// Number of the call.
        number: u64,
    },
    /// Report the cost of requests to the supervisor, in US dollars.
    Spent(f64),
    /// Set the timer to this many milliseconds from now, or stop it.
    Timer(Option<u64>),
}
