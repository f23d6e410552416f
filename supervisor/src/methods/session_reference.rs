//! References to sessions in parameters, as upstream's methods and as quackd's own methods read them. Used by handlers.

use super::handler::schema_like;
use crate::errors::MethodError;
use quackd_protocol::client::SessionParams;
use serde::Deserialize;
use serde_json::Value;

/// A session reference as upstream's methods read it: any JSON value.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AnySession {
    pub(super) session_id: Value,
}
schema_like!(AnySession, SessionParams);

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
