//! A host about which the proxy asked the user. `questions.rs` asks, and keeps the hosts without an answer.

use crate::approvals::Subject;
use actix::SpawnHandle;
use quackd_policy::hosts::{Decision, Host, HostRules};

/// The host of a question, and the subject of the question to the user.
#[derive(Debug)]
pub(super) struct AskedHost {
    pub(super) host: Host,
    pub(super) port: u16,
    /// Whether the host is an address to which an allowed name leads.
    pub(super) is_address_of_name: bool,
    pub(super) subject: Subject,
    /// Whether it was asked while calls ran and no background job: a command of these calls waits.
    pub(super) is_of_calls: bool,
    /// Waits for the outcome. Cancelling it closes the question, unless others wait for it too.
    pub(super) waiting: Option<SpawnHandle>,
}

impl AskedHost {
    /// Whether these rules decide about the connection. The proxy asks about no address of this machine.
    pub(super) fn is_decided(&self, rules: &HostRules) -> bool {
        match (&self.host, self.is_address_of_name) {
            (Host::Address(address), true) => {
                !rules.refuses_address(*address, self.port, |_| false)
                    || matches!(rules.decide(&self.host, self.port), Decision::Denied(_))
            }
            (host, _) => rules.decide(host, self.port) != Decision::NotListed,
        }
    }
}
