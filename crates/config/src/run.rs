//! Settings of programs on a terminal of a session: `quack run`.

use crate::Setting;

/// Settings of `quack run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    /// Hosts that the session of a known agent may reach.
    pub network: Setting<RunNetwork>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self { network: Setting::default_of(RunNetwork::default()) }
    }
}

/// Hosts that the session of a known agent may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunNetwork {
    /// Those of the agent, in addition to the session's.
    #[default]
    Agent,
    /// Those of the session only.
    Session,
}

impl RunNetwork {
    pub(crate) const ALL: [Self; 2] = [Self::Agent, Self::Session];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Session => "session",
        }
    }
}
