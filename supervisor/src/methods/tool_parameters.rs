//! The check of a call for parameters that its tool does not have.

use crate::errors::CallError;
use quackd_protocol::tools::{self, Parameter};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Maximum edit distance at which an unknown parameter name is matched to a known one.
const MAX_DISTANCE: usize = 3;

/// Longest name in the error, in characters.
const MAX_SHOWN: usize = 100;

/// Returns an error for the first unknown parameter, with the nearest known name. For strict tools, the worker does
/// this check for every caller.
pub(super) fn unknown_parameter(tool: &str, arguments: &str) -> Option<CallError> {
    let tool = tools::find(tool).filter(|tool| !tool.is_strict)?;
    let given: BTreeMap<String, IgnoredAny> = serde_json::from_str(arguments).ok()?;
    let unknown = given.into_keys().find(|name| tool.meant_by(name).is_none())?;
    let known = tool.parameters.iter().flat_map(Parameter::names);
    let by_distance = known.map(|known| (strsim::osa_distance(known, &shown(&unknown)), known));
    let nearest = by_distance.min_by_key(|(distance, _)| *distance);
    // A short name is near to every other short name.
    let limit = (unknown.chars().count() / 3).clamp(1, MAX_DISTANCE);
    let nearest = nearest.filter(|(distance, _)| *distance <= limit).map(|(_, known)| known);
    Some(CallError::UnknownParameter { name: shown(&unknown), nearest })
}

fn shown(name: &str) -> String {
    name.chars().take(MAX_SHOWN).collect()
}
