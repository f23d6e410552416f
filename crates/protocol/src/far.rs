//! Sessions whose worker runs on another machine or in a container: where their workspace is, how a link process reaches
//! it, and the states of the link.
//!
//! The supervisor starts a link process (`quack link`) in place of the worker, with the same channel and frames. The link
//! process starts the client of an engine, such as `ssh`, and forwards the frames to `quack worker --stdio` there. It
//! adds [`LinkState`] frames, which are its own: the far side cannot send them.

use crate::foreign_text::first_unsafe;
use crate::isolate::CopiedTree;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest name of an engine, in bytes.
const MAX_ENGINE: usize = 32;

/// Longest target of an engine, such as a host or an image, in bytes.
const MAX_TARGET: usize = 256;

/// Longest path of a far workspace, in bytes.
const MAX_FAR_PATH: usize = 4096;

/// A workspace on another machine or in a container. Its text, `ENGINE:TARGET:PATH` or `ENGINE:PATH`, is the path of the
/// workspace in messages and files. A local path begins with `/`, so no text means both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarWorkspace {
    /// Name of the engine, such as `ssh`: lower-case letters, digits and `-`.
    pub engine: String,
    /// Host, image or pod that the engine reaches, or its options. Empty if it needs none. Without white space, control
    /// characters and a leading `-`.
    pub target: String,
    /// Absolute path there, without `.`, `..` and empty components.
    pub path: String,
}

/// The reason why a text names no far workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FarError {
    /// The engine's name is malformed.
    #[error("an engine's name has lower-case letters, digits and `-` only")]
    Engine,
    /// The target is malformed.
    #[error(
        "a target has no white space, no control characters and no `:/`, does not begin with `-`, and is short"
    )]
    Target,
    /// The path is relative or malformed.
    #[error("the directory there must be an absolute path without `..` and control characters")]
    Path,
}

impl FarWorkspace {
    /// Checks the parts of a far workspace.
    ///
    /// # Errors
    /// See [`FarError`].
    pub fn new(engine: &str, target: &str, path: &str) -> Result<Self, FarError> {
        check_engine(engine)?;
        check_target(target)?;
        let path = normal_path(path).ok_or(FarError::Path)?;
        Ok(Self { engine: engine.to_owned(), target: target.to_owned(), path })
    }

    /// Reads the path of a workspace. `None` if it is a local path: it begins with `/`, or has no `:`.
    ///
    /// # Errors
    /// The text has the form of a far workspace, and a part is malformed.
    pub fn parse(text: &str) -> Option<Result<Self, FarError>> {
        if text.starts_with('/') {
            return None;
        }
        let (engine, rest) = text.split_once(':')?;
        let (target, path) = match rest.split_once(":/") {
            _ if rest.starts_with('/') => ("", rest),
            Some((target, _)) => (target, rest.get(target.len() + 1..).unwrap_or_default()),
            None => return Some(Err(FarError::Path)),
        };
        Some(Self::new(engine, target, path))
    }

    /// Reads the path of a workspace that was checked before. `None` for a local path, and for a malformed text.
    #[must_use]
    pub fn of(workspace: &str) -> Option<Self> {
        Self::parse(workspace)?.ok()
    }

    /// Returns where a session works, if not on this machine: in its workspace, or in a copy that was sent.
    #[must_use]
    pub fn of_session(workspace: &str, isolated: Option<&CopiedTree>) -> Option<Self> {
        let sent = isolated.and_then(|copied| copied.sent.as_ref());
        Self::of(sent.map_or(workspace, |sent| &sent.place))
    }

    /// Name of the place for the user: the target, or the engine without one.
    #[must_use]
    pub fn place(&self) -> &str {
        if self.target.is_empty() { &self.engine } else { &self.target }
    }

    /// The workspace for the user, `build1:/home/me/app`.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("{}:{}", self.place(), self.path)
    }
}

impl fmt::Display for FarWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, target, path } = self;
        if target.is_empty() {
            write!(f, "{engine}:{path}")
        } else {
            write!(f, "{engine}:{target}:{path}")
        }
    }
}

/// Checks the name of an engine.
///
/// # Errors
/// `Engine`.
pub fn check_engine(name: &str) -> Result<(), FarError> {
    let is_word = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if is_word && starts && name.len() <= MAX_ENGINE { Ok(()) } else { Err(FarError::Engine) }
}

/// Checks the target of an engine. It becomes part of an argument list, and of a far shell's line after quoting.
///
/// # Errors
/// `Target`.
pub fn check_target(target: &str) -> Result<(), FarError> {
    let is_refused = target.starts_with('-')
        || target.starts_with('/')
        || target.ends_with(':')
        || target.contains(":/")
        || MAX_TARGET < target.len()
        || target.contains(char::is_whitespace)
        || first_unsafe(target).is_some();
    if is_refused { Err(FarError::Target) } else { Ok(()) }
}

/// Removes empty components and `.` from an absolute path.
fn normal_path(path: &str) -> Option<String> {
    if !path.starts_with('/') || MAX_FAR_PATH < path.len() || first_unsafe(path).is_some() {
        return None;
    }
    let mut normal = String::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return None;
        }
        normal.push('/');
        normal.push_str(part);
    }
    Some(if normal.is_empty() { "/".to_owned() } else { normal })
}

/// Argument lists and limits with which a link process reaches the far side. The link process removes them from the frame
/// that it forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarStart {
    /// Name of the place for the user, such as `build1`.
    pub place: String,
    /// Argument list that starts the far worker. Complete: no shell reads it on this machine. Not empty.
    pub start: Vec<String>,
    /// Argument list that starts another far worker's side of the same link, to resume it. Empty if the engine cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resume: Vec<String>,
    /// Argument list that ends what `start` has left, run after each end. Empty if nothing can be left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Argument list that prints in one line why the far worker does not run yet. Empty without a queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poll: Vec<String>,
    /// File of the program, if the far side may ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Environment of the engine's client. Nothing of it goes to the far side.
    pub env: Vec<(String, String)>,
    /// Time for which a lost link may be resumed, in milliseconds. 0: it ends at once.
    #[serde(default)]
    pub grace_ms: u64,
    /// Maximum wait for a place, in milliseconds.
    pub queue_ms: u64,
}

/// State of the link to a far worker, from the link process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The worker does not run yet, for this reason. Sent again every [`LINK_REPORT_SECONDS`] or sooner.
    Waiting {
        /// One line, such as `job 7 pending (Resources)`.
        reason: String,
    },
    /// The link was lost, and may be resumed. Sent again every [`LINK_REPORT_SECONDS`].
    Interrupted {
        /// One line.
        reason: String,
    },
    /// The link was resumed. No frame was lost.
    Resumed {},
    /// The link is lost, or was not made. The process exits.
    Lost {
        /// One line, from the engine's client or about it.
        reason: String,
    },
}

/// Interval of repeated [`LinkState`] frames, in seconds. Shorter than the timeout of a worker's start.
pub const LINK_REPORT_SECONDS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_workspace_is_read_as_it_is_written() {
        for (text, engine, target, path) in [
            ("ssh:build1:/home/me/app", "ssh", "build1", "/home/me/app"),
            ("ssh:me@build1:/", "ssh", "me@build1", "/"),
            ("slurm:/home/me/app", "slurm", "", "/home/me/app"),
            ("slurm:partition=main,cpus=2:/w", "slurm", "partition=main,cpus=2", "/w"),
            ("podman:localhost:5000/x:1:/w", "podman", "localhost:5000/x:1", "/w"),
            ("ssh:[fe80::1]:/a:/b", "ssh", "[fe80::1]", "/a:/b"),
        ] {
            let far = FarWorkspace::parse(text).unwrap().unwrap();
            assert_eq!((far.engine.as_str(), far.target.as_str()), (engine, target), "{text}");
            assert_eq!((far.path.as_str(), far.to_string().as_str()), (path, text));
        }
        let far = FarWorkspace::new("ssh", "h", "//a/./b/").unwrap();
        assert_eq!((far.to_string().as_str(), far.shown().as_str()), ("ssh:h:/a/b", "h:/a/b"));
        assert_eq!(FarWorkspace::of("slurm:/w").unwrap().shown(), "slurm:/w");
    }

    #[test]
    fn local_paths_are_local_and_malformed_parts_are_refused() {
        for text in ["/home/me", "/ssh:h:/x", "app", "", "unknown", "~/x"] {
            assert_eq!(FarWorkspace::parse(text), None, "{text}");
        }
        for (text, error) in [
            ("ssh:-oProxyCommand=x:/w", FarError::Target),
            ("ssh:a b:/w", FarError::Target),
            ("ssh:a\nb:/w", FarError::Target),
            ("ssh:a\u{1b}:/w", FarError::Target),
            ("ssh:a:::/w", FarError::Target),
            ("Ssh:a:/w", FarError::Engine),
            ("-x:a:/w", FarError::Engine),
            (":a:/w", FarError::Engine),
            ("ssh:a", FarError::Path),
            ("ssh:a:w", FarError::Path),
            ("ssh:a:/w/../x", FarError::Path),
            ("ssh:a:/w\n", FarError::Path),
        ] {
            assert_eq!(FarWorkspace::parse(text), Some(Err(error)), "{text}");
        }
    }
}
