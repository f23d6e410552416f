//! The user's grants for uses of credentials, as far as they hold for one session.

use quackd_protocol::approval::Decision;
use quackd_protocol::credentials::CredentialUse;

/// Grants of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialGrants {
    allowed: Vec<CredentialUse>,
    denied: Vec<CredentialUse>,
}

impl CredentialGrants {
    /// Adds a grant.
    pub fn add(&mut self, decision: Decision, purpose: CredentialUse) {
        match decision {
            Decision::Allow => self.allowed.push(purpose),
            Decision::Deny => self.denied.push(purpose),
        }
    }

    /// Returns the decision about a use. A grant that denies wins, also if it denies a part of the use. `None` if no grant
    /// is about it.
    #[must_use]
    pub fn decide(&self, purpose: &CredentialUse) -> Option<Decision> {
        if self.denied.iter().any(|denied| purpose.includes(denied)) {
            return Some(Decision::Deny);
        }
        let is_allowed = self.allowed.iter().any(|allowed| allowed.includes(purpose));
        is_allowed.then_some(Decision::Allow)
    }

    /// Returns true if `old` allows something that these grants may not allow.
    #[must_use]
    pub fn is_narrower_than(&self, old: &Self) -> bool {
        !old.allowed.iter().all(|one| self.allowed.contains(one))
            || !self.denied.iter().all(|one| old.denied.contains(one))
    }

    /// Returns these grants without those that allow a use that `old` does not allow.
    #[must_use]
    pub fn narrowed(&self, old: &Self) -> Self {
        let is_known = |one: &&CredentialUse| old.allowed.iter().any(|old| old.includes(one));
        let allowed = self.allowed.iter().filter(is_known).cloned().collect();
        Self { allowed, denied: self.denied.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purpose(text: &str) -> CredentialUse {
        text.parse().unwrap()
    }

    fn grants(allowed: &[&str], denied: &[&str]) -> CredentialGrants {
        let mut grants = CredentialGrants::default();
        allowed.iter().for_each(|text| grants.add(Decision::Allow, purpose(text)));
        denied.iter().for_each(|text| grants.add(Decision::Deny, purpose(text)));
        grants
    }

    #[test]
    fn a_denial_wins_and_a_push_includes_the_fetch() {
        let grants = grants(
            &["push a.example/x", "push a.example/y", "ssh git@a.example", "sign commits"],
            &["fetch a.example/y", "ssh git@a.example"],
        );
        for (text, expected) in [
            ("push a.example/x", Some(Decision::Allow)),
            ("fetch a.example/x", Some(Decision::Allow)),
            ("fetch a.example/y", Some(Decision::Deny)),
            ("push a.example/y", Some(Decision::Deny)),
            ("fetch a.example/z", None),
            ("ssh git@a.example", Some(Decision::Deny)),
            ("ssh me@a.example", None),
            ("sign commits", Some(Decision::Allow)),
        ] {
            assert_eq!(grants.decide(&purpose(text)), expected, "{text}");
        }
    }

    #[test]
    fn grants_are_narrower_if_one_was_removed_or_a_denial_added() {
        let old = grants(&["push a.example/x", "sign commits"], &[]);
        assert!(grants(&["sign commits"], &[]).is_narrower_than(&old));
        assert!(
            grants(&["push a.example/x", "sign commits"], &["fetch a.example/x"])
                .is_narrower_than(&old)
        );
        let wider = grants(&["push a.example/x", "sign commits", "ssh git@a.example"], &[]);
        assert!(!wider.is_narrower_than(&old) && !old.is_narrower_than(&old));
        assert_eq!(wider.narrowed(&old), old);
        let with_fetch = grants(&["fetch a.example/x"], &["sign commits"]);
        assert_eq!(with_fetch.narrowed(&old), with_fetch);
    }
}
