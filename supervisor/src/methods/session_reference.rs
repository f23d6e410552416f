//! References to sessions in parameters of quackd's own methods. Used by handlers.

use crate::errors::MethodError;

/// A session reference in a parameter of quackd's own methods: `None` if absent.
///
/// # Errors
/// `NoReference` if it is empty. Upstream's methods read an empty reference as none, which means the active session.
pub(super) fn own_reference(given: Option<&str>) -> Result<Option<String>, MethodError> {
    match given {
        Some(text) if text.trim().is_empty() => Err(MethodError::NoReference),
        other => Ok(other.map(str::to_owned)),
    }
}
