//! A secret of the configuration file. Nothing shows its text.

use std::fmt;

/// The text that is shown in place of a secret.
pub(crate) const SHOWN: &str = "(set)";

/// A secret of the configuration file, or an empty text. `Debug` shows only whether it is set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Returns the secret. `None` if it is not set.
    #[must_use]
    pub fn expose(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(self.0.as_str())
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
