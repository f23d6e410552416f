//! The rules of a session: as texts for its proxy, and parsed, and the user's grants for credentials. The registry makes
//! them after each change, and the session passes them on.

use super::{HostRules, Rule, RuleError};
use crate::CredentialGrants;
use quackd_protocol::approval::Decision;
use quackd_protocol::credentials::CredentialUse;
use quackd_protocol::network::{RuleText, Rules};

/// The rules of a session. Each text is parsed once, before it is added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRules {
    texts: Rules,
    hosts: HostRules,
    credentials: CredentialGrants,
}

impl SessionRules {
    /// Adds a rule with its origin for display. `parsed` is the result of parsing its text.
    pub fn add(&mut self, rule: String, parsed: Result<Rule, RuleError>, origin: String) {
        let text = RuleText { rule, origin };
        self.hosts.add(&text, parsed);
        self.texts.rules.push(text);
    }

    /// Adds a grant for the use of a credential.
    pub fn add_credential(&mut self, decision: Decision, purpose: CredentialUse) {
        self.credentials.add(decision, purpose);
    }

    /// Sets whether a setting turns the network off.
    pub fn set_off(&mut self, is_off: bool) {
        self.texts.is_off = is_off;
    }

    /// Returns true if a setting turns the network off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.texts.is_off
    }

    /// Returns the texts, for the frames to the proxy.
    #[must_use]
    pub fn texts(&self) -> &Rules {
        &self.texts
    }

    /// Returns the parsed rules.
    #[must_use]
    pub fn hosts(&self) -> &HostRules {
        &self.hosts
    }

    /// Returns the grants for uses of credentials.
    #[must_use]
    pub fn credentials(&self) -> &CredentialGrants {
        &self.credentials
    }

    /// Returns these rules with the grants for credentials of `new` that these rules have too.
    #[must_use]
    pub fn with_narrower_credentials(&self, new: &Self) -> Self {
        Self { credentials: new.credentials.narrowed(&self.credentials), ..self.clone() }
    }

    /// Returns these rules without the hosts and uses of credentials that the old rules do not allow.
    #[must_use]
    pub fn narrowed(&self, old: &Self) -> Self {
        let is_known = |rule: &&RuleText| {
            rule.rule.starts_with('!') || old.texts.rules.iter().any(|it| it.rule == rule.rule)
        };
        let rules: Vec<_> = self.texts.rules.iter().filter(is_known).cloned().collect();
        Self {
            hosts: HostRules::parse(&rules),
            texts: Rules { rules, ..self.texts },
            credentials: self.credentials.narrowed(&old.credentials),
        }
    }
}
