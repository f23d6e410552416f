//! The reason why the supervisor kills a child, besides the cause that the state machine records.

/// Shown in the log and to the followers of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillReason {
    NoHeartbeat,
    OverMemory,
    UserRequest,
    BrokeProtocol,
    ClosedChannel,
    /// A worker failed or broke the protocol.
    Failed,
    /// An agent did not answer a command.
    NoAnswer,
    /// An agent did not abort its turn.
    NoAbort,
    /// An agent does not read commands.
    ClosedStdin,
    CannotStart,
    OtherVersion,
    /// The link to a far worker was lost.
    LinkLost,
}

impl KillReason {
    /// Reason in words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoHeartbeat => "its worker did not answer",
            Self::OverMemory => "its session has too much memory",
            Self::UserRequest => "killed on the user's request",
            Self::BrokeProtocol => "its worker broke the protocol",
            Self::ClosedChannel => "its worker closed its channel",
            Self::Failed => "it failed or broke the protocol",
            Self::NoAnswer => "it did not answer",
            Self::NoAbort => "it did not abort",
            Self::ClosedStdin => "it closed its stdin",
            Self::CannotStart => "it cannot be started",
            Self::OtherVersion => "its worker is of another version",
            Self::LinkLost => "the link to it was lost",
        }
    }
}
