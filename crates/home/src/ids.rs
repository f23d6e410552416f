//! Creates ids. Ids from other programs are opaque.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io;

/// Creates a session id: 22 base64url characters from 128 random bits. The first character is a letter or a
/// digit, so no command line parses the id as an option.
///
/// # Errors
/// The system's random source failed. There is no fallback: a predictable or repeated id is worse than a
/// failed request.
pub fn new_id() -> io::Result<String> {
    loop {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes)?;
        let id = URL_SAFE_NO_PAD.encode(bytes);
        // One id in 32 starts with `-` or `_`, so the loop is short.
        if id.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            return Ok(id);
        }
    }
}

/// Returns the id of a new workspace: the first 16 hex digits of the SHA-256 of its path.
#[must_use]
pub fn workspace_id(path: &str) -> String {
    let mut id = String::with_capacity(16);
    for byte in Sha256::digest(path).iter().take(8) {
        // Writing to a String cannot fail.
        write!(id, "{byte:02x}").ok();
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_new_id_has_22_base64url_characters_and_does_not_repeat() {
        let ids: HashSet<String> = (0..1000).map(|_| new_id().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            assert_eq!(id.len(), 22, "{id}");
            assert!(id.starts_with(|first: char| first.is_ascii_alphanumeric()), "{id}");
            assert!(
                id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'),
                "{id}"
            );
        }
    }

    #[test]
    fn a_workspace_id_is_the_beginning_of_the_hash_of_its_path() {
        // printf %s /home/u/w1 | sha256sum
        assert_eq!(workspace_id("/home/u/w1"), "5a295348d6426d22");
    }
}
