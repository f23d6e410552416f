//! The confirmation of an answer that allows more than the waiting operation. A forged question shows another target and
//! no code, so it cannot lead to such an answer. Used by the questions at a terminal and by `quack allow`.

use crate::display::plain;
use quackd_protocol::approval::ApprovalKind;
use quackd_protocol::credentials::CredentialUse;

/// Length of a code, in characters.
const CODE_CHARS: usize = 4;

/// Characters of a code, without those that look alike.
const CODE_ALPHABET: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";

/// The word that confirms an answer about one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confirmation {
    word: String,
    target: String,
}

impl Confirmation {
    /// Returns the host of a question about the network or a credential, `sign` for signatures, and a random code for
    /// another question: a directory or a command may be long, or look like another.
    pub(crate) fn new(kind: ApprovalKind, target: &str) -> Self {
        let word = match kind {
            ApprovalKind::Network => Some(host(target).to_owned()),
            ApprovalKind::Credential => target.parse::<CredentialUse>().ok().map(|used| {
                let host = used.host().map_or("sign", |(host, _)| host);
                host.trim_matches(['[', ']']).to_owned()
            }),
            ApprovalKind::Write | ApprovalKind::Command | ApprovalKind::SafeMode => None,
        };
        let word = word.or_else(code).unwrap_or_else(|| target.to_owned());
        Self { word, target: target.to_owned() }
    }

    /// Returns the request to type the word, without control characters.
    pub(crate) fn request(&self) -> String {
        format!("Type {} to confirm", plain(&self.word))
    }

    /// Whether the user has typed the word, or the whole target.
    pub(crate) fn is_given(&self, typed: &str) -> bool {
        let typed = typed.trim();
        !typed.is_empty() && (typed.eq_ignore_ascii_case(&self.word) || names(typed, &self.target))
    }
}

/// Whether a text is the target of a question, or its host.
pub(crate) fn names(text: &str, target: &str) -> bool {
    text == target
        || text.eq_ignore_ascii_case(target) && is_host(target)
        || is_host_of(text, target)
}

fn is_host_of(text: &str, target: &str) -> bool {
    is_host(target) && text.eq_ignore_ascii_case(host(target))
}

/// Whether a target is a host with its port.
fn is_host(target: &str) -> bool {
    let port = target.rsplit_once(':').map(|(_, port)| port).unwrap_or_default();
    !target.starts_with('/') && !target.contains(' ') && port.parse::<u16>().is_ok()
}

/// Returns the host of `host:port`.
fn host(target: &str) -> &str {
    let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Returns a random code. `None` if the system has no random numbers.
fn code() -> Option<String> {
    let id = quackd_home::new_id().ok()?.to_ascii_lowercase();
    let code: String = id
        .chars()
        .filter(|c| CODE_ALPHABET.contains(&u8::try_from(*c).unwrap_or(0)))
        .take(CODE_CHARS)
        .collect();
    (code.len() == CODE_CHARS).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_typed_and_another_one_does_not_confirm() {
        let asked = Confirmation::new(ApprovalKind::Network, "evil.example.com:80");
        assert_eq!(asked.request(), "Type evil.example.com to confirm");
        for typed in ["evil.example.com", " EVIL.example.com ", "evil.example.com:80"] {
            assert!(asked.is_given(typed), "{typed}");
        }
        for typed in
            ["", "y", "yes", "5", "npm.example.org", "example.com", "evil.example.com:443", "evil"]
        {
            assert!(!asked.is_given(typed), "{typed}");
        }
        assert!(
            Confirmation::new(ApprovalKind::Network, "[2001:db9::1]:443").is_given("2001:db9::1")
        );
    }

    #[test]
    fn the_host_of_a_credential_is_typed_and_sign_for_signatures() {
        for (target, word) in [
            ("ssh git@github.com:2222", "github.com"),
            ("ssh me@[2001:db8::1]:2222", "2001:db8::1"),
            ("push github.com/me/app", "github.com"),
            ("sign commits", "sign"),
        ] {
            let asked = Confirmation::new(ApprovalKind::Credential, target);
            assert_eq!(asked.request(), format!("Type {word} to confirm"));
            assert!(asked.is_given(word) && asked.is_given(target), "{target}");
            for typed in ["", "y", "2", "push", "git.example", "fetch github.com/me/app"] {
                assert!(!asked.is_given(typed), "{target} {typed}");
            }
        }
    }

    #[test]
    fn a_code_is_typed_for_everything_else() {
        let asked = Confirmation::new(ApprovalKind::Write, "/srv/out");
        let other = Confirmation::new(ApprovalKind::Write, "/srv/out");
        assert_ne!(asked.word, other.word);
        assert_eq!(asked.word.len(), CODE_CHARS);
        assert!(asked.is_given(&asked.word) && asked.is_given("/srv/out"));
        for typed in ["", "y", "/srv", "out", &other.word] {
            assert!(!asked.is_given(typed), "{typed}");
        }
        let command = Confirmation::new(ApprovalKind::Command, "echo a:80");
        assert!(!command.is_given("echo a"));
    }
}
