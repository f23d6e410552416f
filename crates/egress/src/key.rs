//! A provider's key: read from the environment, stored, and never shown.

use crate::EgressError;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use std::ffi::OsString;

/// Variables that may contain the key. The first one that is not blank applies.
const VARIABLES: [&str; 2] = ["RUBBER_DUCK_EXA_API_KEY", "EXA_API_KEY"];

/// Shortest key that is masked.
const MIN_MASKED_BYTES: usize = 8;

/// A key that can be sent. The `Debug` output is empty, and the memory is wiped on drop.
#[derive(Debug, Clone)]
pub struct Key(SecretString);

impl Key {
    /// Reads the key from the daemon's variables: `RUBBER_DUCK_EXA_API_KEY`, or `EXA_API_KEY` if the first is unset or
    /// blank. `None` if both are.
    ///
    /// # Errors
    /// The key that applies cannot be sent.
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, EgressError> {
        for value in VARIABLES.iter().filter_map(|name| variable(name)) {
            let text = value.to_str().ok_or(EgressError::UnusableKey)?;
            if let Some(key) = Self::parse(text)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Checks a key. Removes surrounding white space, since keys come from files. `None` if nothing else is left.
    ///
    /// # Errors
    /// An HTTP header cannot carry the key.
    pub fn parse(text: &str) -> Result<Option<Self>, EgressError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let is_sendable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_sendable {
            return Err(EgressError::UnusableKey);
        }
        Ok(Some(Self(SecretString::from(text))))
    }

    /// Returns the key as a header for one request. This copy is not wiped, and is dropped with the request.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut header = HeaderValue::from_str(self.0.expose_secret()).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Returns the key as a bearer token for one request. This copy is not wiped.
    pub(crate) fn bearer(&self) -> Option<HeaderValue> {
        let mut header =
            HeaderValue::from_str(&format!("Bearer {}", self.0.expose_secret())).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Returns `text` with asterisks in place of the key. A key of less than 8 bytes may be a usual word, so it stays.
    pub(crate) fn masked(&self, text: &[u8]) -> Vec<u8> {
        let key = self.0.expose_secret().as_bytes();
        let mut masked = text.to_vec();
        if key.len() < MIN_MASKED_BYTES {
            return masked;
        }

        let mut at = 0;
        while let Some(rest) = masked.get_mut(at..).filter(|rest| key.len() <= rest.len()) {
            match rest.get_mut(..key.len()).filter(|part| *part == key) {
                Some(part) => {
                    part.fill(b'*');
                    at += key.len();
                }
                None => at += 1,
            }
        }
        masked
    }

    /// Like [`Self::masked`], and also masks a part of the key at the end, where the text may have been cut.
    pub(crate) fn masked_at_cut(&self, text: &[u8]) -> Vec<u8> {
        let key = self.0.expose_secret().as_bytes();
        let mut masked = self.masked(text);
        // The longest part contains the shorter ones.
        let parts = (MIN_MASKED_BYTES..key.len()).rev().filter_map(|length| key.get(..length));
        if let Some(part) = parts.into_iter().find(|part| masked.ends_with(part)) {
            let start = masked.len() - part.len();
            masked.iter_mut().skip(start).for_each(|byte| *byte = b'*');
        }
        masked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rubber_duck: Option<&str>, exa: Option<&str>) -> Result<Option<String>, EgressError> {
        let variable = |name: &str| match name {
            "RUBBER_DUCK_EXA_API_KEY" => rubber_duck.map(OsString::from),
            "EXA_API_KEY" => exa.map(OsString::from),
            other => panic!("{other} was asked for"),
        };
        let key = Key::from_variables(variable)?;
        Ok(key.map(|key| key.header().unwrap().to_str().unwrap().to_owned()))
    }

    #[test]
    fn the_first_variable_with_something_in_it_counts() {
        let key = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(found(Some("a"), Some("b")), key("a"));
        assert_eq!(found(None, Some("b")), key("b"));
        assert_eq!(found(Some(""), Some("b")), key("b"));
        assert_eq!(found(Some(" \n"), Some(" b\n")), key("b"));
        assert_eq!(found(Some("a"), None), key("a"));
        assert_eq!(found(Some("a"), Some("not\nsent")), key("a"));
        assert_eq!(found(None, None), Ok(None));
        assert_eq!(found(Some(""), Some("")), Ok(None));
        for unusable in ["a b", "a\r\nx-other: b", "ä", "a\0"] {
            assert_eq!(found(None, Some(unusable)), Err(EgressError::UnusableKey), "{unusable:?}");
        }
    }

    #[test]
    fn a_key_is_shown_to_nobody() {
        let key = Key::parse("hush-hush").unwrap().unwrap();
        let told = format!("{key:?} {:?}", key.header().unwrap());
        assert!(!told.contains("hush"), "{told}");
        let masked = |text: &str| String::from_utf8(key.masked(text.as_bytes())).unwrap();
        assert_eq!(masked("a hush-hush hush-hush! hush"), "a ********* *********! hush");
        assert_eq!([masked(""), masked("hush-hus")], ["", "hush-hus"]);
    }
}
