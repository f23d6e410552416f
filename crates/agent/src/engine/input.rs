//! Events from the driver, each with the time. [`super::Agent::handle`] takes them.

use quackd_protocol::agent::{AgentCommand, AgentModels, AgentToolDone};
use quackd_protocol::model::{ModelFailure, ModelHead};

/// The current time and a random number. The driver provides them, so that the engine is
/// deterministic.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Unix time in milliseconds.
    pub unix_ms: i64,
    /// For ids of entries.
    pub random: u32,
}

/// Event from the driver.
#[derive(Debug)]
pub enum Input {
    /// A client's command. Answered by one [`Effect::Answer`](super::Effect::Answer) with the same number.
    Command {
        /// Number of the command.
        number: u64,
        /// The command.
        command: AgentCommand,
    },
    /// A part of a model's answer.
    Model {
        /// Number of the request.
        number: u64,
        /// The part.
        part: Part,
    },
    /// A tool call has ended.
    ToolDone(Box<AgentToolDone>),
    /// The timer of the last [`Effect::Timer`](super::Effect::Timer) has expired.
    Timer,
    /// The models have changed.
    Models(Box<AgentModels>),
}

/// A part of a model's answer, with its bytes decoded.
#[derive(Debug)]
pub enum Part {
    /// The head.
    Head(ModelHead),
    /// Bytes of the body.
    Bytes(Vec<u8>),
    /// The body is complete.
    Done,
    /// The answer is missing or incomplete.
    Failed(ModelFailure),
}
