//! Settings of programs on terminals, which `quack run` starts.

use crate::Setting;
use quackd_protocol::limits::{DEFAULT_SCROLLBACK_BYTES, MAX_SCROLLBACK_BYTES};

/// Largest size of the lines above the screen, in KiB.
pub(crate) const MAX_SCROLLBACK_KB: u64 = (MAX_SCROLLBACK_BYTES / 1024) as u64;

/// Settings of programs on terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    /// Keys that detach a client, such as `ctrl-\`. The client parses them.
    pub detach_keys: Setting<String>,
    /// Whether programs may set the clipboard of an attached client.
    pub clipboard: Setting<ClipboardChoice>,
    /// Size of the lines above the screen that are kept for one terminal, in KiB. 0 for none.
    pub scrollback_kb: Setting<usize>,
    /// Hosts that the session of a known agent may reach.
    pub network: Setting<RunNetwork>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            detach_keys: Setting::default_of("ctrl-\\".to_owned()),
            clipboard: Setting::default_of(ClipboardChoice::default()),
            scrollback_kb: Setting::default_of(DEFAULT_SCROLLBACK_BYTES / 1024),
            network: Setting::default_of(RunNetwork::default()),
        }
    }
}

/// Access of programs on terminals to the clipboard. Reading is never allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClipboardChoice {
    /// None.
    #[default]
    Off,
    /// Programs may set it.
    Write,
}

impl ClipboardChoice {
    pub(crate) const ALL: [Self; 2] = [Self::Off, Self::Write];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Write => "write",
        }
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
