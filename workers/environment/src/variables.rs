//! Selects the requested variables from the bytes of an environment. Used by [`crate::capture`].

use quackd_protocol::environment::{
    CaptureRequest, MAX_CAPTURE_VARIABLES, MAX_LOGIN_BYTES, MAX_VALUE_BYTES,
};
use std::collections::BTreeMap;

/// Reason why an environment is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvironmentError {
    #[error("an environment of more than {MAX_CAPTURE_VARIABLES} variables")]
    TooMany,
    #[error("variables of more than {MAX_LOGIN_BYTES} bytes")]
    TooLong,
}

/// Returns the variables in `entries` (each ends with a NUL) that `request` names, sorted. Omits variables that are
/// not UTF-8 or longer than [`MAX_VALUE_BYTES`]. Of duplicates, the first one counts, as in other programs.
pub(crate) fn requested(
    entries: &[u8],
    request: &CaptureRequest,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    if MAX_CAPTURE_VARIABLES < entries.iter().filter(|byte| **byte == 0).count() {
        return Err(EnvironmentError::TooMany);
    }

    let mut selected = BTreeMap::new();
    let mut bytes = 0_usize;
    for entry in entries.split(|byte| *byte == 0) {
        let Ok(entry) = std::str::from_utf8(entry) else { continue };
        let Some((name, value)) = entry.split_once('=') else { continue };
        let is_requested = request.names.iter().any(|requested| requested == name)
            || request.prefixes.iter().any(|prefix| name.starts_with(prefix));
        let is_short = name.len() <= MAX_VALUE_BYTES && value.len() <= MAX_VALUE_BYTES;
        if is_requested && is_short && !selected.contains_key(name) {
            bytes += entry.len();
            selected.insert(name.to_owned(), value.to_owned());
        }
    }

    if MAX_LOGIN_BYTES < bytes {
        return Err(EnvironmentError::TooLong);
    }
    Ok(selected.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(names: &[&str], prefixes: &[&str]) -> CaptureRequest {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        CaptureRequest {
            run_dir: String::new(),
            base: Vec::new(),
            names: owned(names),
            prefixes: owned(prefixes),
            deadline_ms: 0,
            untrusted: Vec::new(),
        }
    }

    #[test]
    fn only_what_was_asked_for_is_taken() {
        let entries =
            b"OPENAI_API_KEY=sk\0PATH=/a:/b\0PATHS=no\0LC_ALL=C\0=x\0none\0\0\xff=1\0PATH=/late\0\
            HOME=/h\xff\0B=1\nPATH=/not\n\0A=\0";
        let variables =
            requested(entries, &request(&["PATH", "HOME", "A", "B"], &["LC_"])).unwrap();
        let expected = [("A", ""), ("B", "1\nPATH=/not\n"), ("LC_ALL", "C"), ("PATH", "/a:/b")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(variables, expected);
    }

    #[test]
    fn sizes_are_bounded() {
        let long = "x".repeat(MAX_VALUE_BYTES);
        let of = |text: String| requested(text.as_bytes(), &request(&["A"], &["LC_"]));
        assert_eq!(of(format!("A={long}\0")).unwrap().len(), 1);
        assert_eq!(of(format!("A={long}x\0LC_B=1\0")).unwrap(), [("LC_B".into(), "1".into())]);
        assert_eq!(of(format!("A={long}\0LC_A={long}\0")), Err(EnvironmentError::TooLong));
        assert!(of("B=1\0".repeat(MAX_CAPTURE_VARIABLES)).unwrap().is_empty());
        assert_eq!(of("B=1\0".repeat(MAX_CAPTURE_VARIABLES + 1)), Err(EnvironmentError::TooMany));
    }
}
