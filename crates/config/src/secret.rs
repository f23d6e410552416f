//! A secret of the configuration file. Nothing shows its text.

use std::fmt;

/// The text that is shown in place of a secret.
pub(crate) const SHOWN: &str = "(set)";

/// Prefix of an account of the system's keychain.
const KEYCHAIN: &str = "keychain:";

/// Maximum length of an account of the keychain, in bytes.
const MAX_ACCOUNT: usize = 64;

/// A secret of the configuration file, the name of one in the system's keychain, or an empty text. `Debug` shows only whether it is set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Returns the secret. `None` if it is not set, or if the keychain has it.
    #[must_use]
    pub fn expose(&self) -> Option<&str> {
        (!self.0.is_empty() && self.account().is_none()).then_some(self.0.as_str())
    }

    /// Returns the account of `keychain:ACCOUNT`, which names an entry of the system's keychain.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        self.0.strip_prefix(KEYCHAIN)
    }

    /// Whether the text names a secret, or an account that programs accept.
    pub(crate) fn check(&self) -> Result<(), String> {
        // Programs read a text with a leading hyphen as an option.
        let is_sound = |account: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
            (1..=MAX_ACCOUNT).contains(&account.len())
                && account.chars().all(is_plain)
                && !account.starts_with('-')
        };

        match self.account() {
            Some(account) if !is_sound(account) => Err(format!(
                "must have 1 to {MAX_ACCOUNT} letters, digits, `.`, `_`, `-` or `@` after `{KEYCHAIN}`"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the text for display.
    pub(crate) fn shown(&self) -> &'static str {
        if self.0.is_empty() { "" } else { SHOWN }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(not set)" } else { SHOWN })
    }
}
