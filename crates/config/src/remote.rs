//! Settings of remote control.

use crate::Setting;

/// Rights of remote clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettings {
    /// Answers about permissions that remote clients may give.
    pub approvals: Setting<RemoteApprovals>,
    /// Whether remote clients may use terminals, and not only look at them.
    pub terminals: Setting<bool>,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            approvals: Setting::default_of(RemoteApprovals::Off),
            terminals: Setting::default_of(false),
        }
    }
}

/// Answers about permissions that remote clients may give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteApprovals {
    /// Remote clients answer no questions.
    Off,
    /// Denials, and permission for the waiting operation.
    Once,
    /// Also permission for the session.
    Session,
}

impl RemoteApprovals {
    pub(crate) const ALL: [Self; 3] = [Self::Off, Self::Once, Self::Session];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Once => "once",
            Self::Session => "session",
        }
    }
}
