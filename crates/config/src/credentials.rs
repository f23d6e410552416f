//! Settings of the user's credentials that commands use without getting them.

use crate::Setting;

/// Value of [`CredentialSettings::ssh_agent`] for the agent that `SSH_AUTH_SOCK` names.
pub const SSH_AGENT_AUTO: &str = "auto";

/// Credentials of the user that commands use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialSettings {
    /// Whether commands use keys of the user's ssh agent.
    pub ssh: Setting<bool>,
    /// Whether commands use credentials of the user's git.
    pub git: Setting<bool>,
    /// Path of the socket of the user's ssh agent, [`SSH_AGENT_AUTO`], or empty for none.
    pub ssh_agent: Setting<String>,
}

impl Default for CredentialSettings {
    fn default() -> Self {
        Self {
            ssh: Setting::default_of(true),
            git: Setting::default_of(true),
            ssh_agent: Setting::default_of(SSH_AGENT_AUTO.to_owned()),
        }
    }
}
