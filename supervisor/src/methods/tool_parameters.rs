//! Checks of the parameters of a call.

use crate::errors::{CallError, MethodError};
use crate::events::SessionCall;
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::tools::Parameter;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Maximum edit distance at which an unknown parameter name is matched to a known one.
const MAX_DISTANCE: usize = 3;

/// Longest name in the error, in characters.
const MAX_SHOWN: usize = 100;

/// Returns an error for the first unknown parameter, with the nearest known name. For strict tools, the worker does
/// this check for every caller.
pub(super) fn unknown_parameter(call: &SessionCall) -> Option<CallError> {
    let tool = call.row.filter(|tool| !tool.is_strict)?;
    let names: BTreeMap<String, IgnoredAny> = serde_json::from_str(&call.spec.arguments).ok()?;
    let unknown = names.into_keys().find(|name| tool.meant_by(name).is_none())?;

    let name: String = unknown.chars().take(MAX_SHOWN).collect();
    let known = tool.parameters.iter().flat_map(Parameter::names);
    let nearest = nearest(known, |known| strsim::osa_distance(known, &name), &unknown);
    Some(CallError::UnknownParameter { name, nearest })
}

/// Returns the known name with the smallest distance to an unknown one. `None` if all are too different.
pub(super) fn nearest<T>(
    known: impl Iterator<Item = T>,
    distance: impl Fn(&T) -> usize,
    unknown: &str,
) -> Option<T> {
    // A short name is near to every other short name.
    let limit = (unknown.chars().count() / 3).clamp(1, MAX_DISTANCE);
    let near = known.map(|name| (distance(&name), name)).filter(|(distance, _)| *distance <= limit);
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Returns a directory of the caller relative to the workspace. Compares the texts of the paths: only the worker touches
/// the files of a session.
pub(super) fn beneath(workspace: &str, cwd: &str) -> Result<String, MethodError> {
    let far = FarWorkspace::of(workspace);
    let workspace = far.as_ref().map_or(workspace, |far| far.path.as_str());
    let relative = Path::new(cwd).strip_prefix(workspace).map_err(|_outside| MethodError::Cwd)?;
    relative.to_str().filter(|path| is_beneath(path)).map(str::to_owned).ok_or(MethodError::Cwd)
}

/// Returns whether a relative path leads downwards only.
pub(super) fn is_beneath(relative: &str) -> bool {
    let mut parts = Path::new(relative).components();
    parts.all(|part| matches!(part, Component::Normal(_))) && !relative.contains('\0')
}

/// Returns whether two paths are lexically the same.
pub(super) fn same_path(a: &str, b: &str) -> bool {
    let normal = |path: &str| {
        let mut out = PathBuf::new();
        for part in Path::new(path).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    out.pop();
                }
                other => out.push(other),
            }
        }
        out
    };
    normal(a) == normal(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_the_caller_is_in_the_workspace() {
        for (cwd, relative) in [("/w", ""), ("/w/", ""), ("/w/src/a b", "src/a b")] {
            assert_eq!(beneath("/w", cwd).unwrap(), relative);
            assert_eq!(beneath("ssh:build1:/w", cwd).unwrap(), relative);
        }
        for cwd in ["", "src", "/", "/w2", "/w/../x", "/w/a/../..", "/w/\0"] {
            assert!(beneath("/w", cwd).is_err(), "{cwd:?}");
        }
    }

    #[test]
    fn paths_are_compared_lexically() {
        assert!(same_path("/a/b", "/a/./c/../b/"));
        assert!(!same_path("/a/b", "/a/B"));
    }
}
