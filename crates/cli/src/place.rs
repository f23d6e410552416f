//! Where the verbs that look into files work: which session, and what paths are relative to. Used by
//! `quack grep`, `find`, `replace` and `undo`.
//!
//! A tool knows the workspace only; a person stands in some directory of it. Paths and globs are made
//! relative to the workspace on the way in, and to that directory on the way out.

use crate::args::search::CallArgs;
use crate::connect::{Connected, start_and_connect};
use crate::exit::Fault;
use crate::output::Output;
use crate::verbs::tool::patience;
use crate::which::{Missing, Wanted};
use quackd_protocol::client::{FoundInfo, ToolParams, ToolResult};
use quackd_protocol::limits::{MAX_TOOL_DEADLINE, MIN_TOOL_DEADLINE};
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for everything that a verb asks, if the caller says nothing.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest time that a tool takes to look, in one call.
const MAX_LOOK: Duration = Duration::from_secs(120);

/// Shortest.
const MIN_LOOK: Duration = MIN_TOOL_DEADLINE;

/// Added to the time for looking before the call itself ends: partial results have to come back.
const CALL_SLACK: Duration = Duration::from_secs(5);

/// A session, its workspace, and a directory in it.
#[derive(Debug)]
pub(crate) struct Place {
    /// Absolute and canonical.
    workspace: PathBuf,
    /// Relative to the workspace; empty for the workspace itself.
    base: PathBuf,
}

/// A daemon, a place, and the time that is left.
#[derive(Debug)]
pub(crate) struct Asking {
    daemon: Connected,
    /// Where.
    pub(crate) place: Place,
    /// The session.
    pub(crate) found: FoundInfo,
    deadline: Instant,
}

impl Asking {
    /// Finds the place that is meant and connects.
    ///
    /// # Errors
    /// A usage error if there is no such place; of connecting; no such session.
    pub(crate) async fn begin(args: &CallArgs, output: Output) -> anyhow::Result<Self> {
        let deadline = Instant::now() + args.timeout.unwrap_or(DEFAULT_TIMEOUT);
        // Before a daemon is started for nothing.
        let wanted = Wanted::of(&args.which)?;
        let daemon = start_and_connect(output).await?;
        let found = wanted.one(&daemon.client, Missing::Create).await?;
        let place = Place::of_session(&found, args.which.dir.as_deref());
        Ok(Self { daemon, place, found, deadline })
    }

    /// Time for looking that is left; `None` if there is none.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        (MIN_LOOK <= left).then_some(left)
    }

    /// Calls a tool. With `has_timeout` it is told how long to look: it gives back what it has then.
    ///
    /// # Errors
    /// Of the request. What the tool says, also that it failed, is the result.
    pub(crate) async fn call(
        &self,
        tool: &str,
        mut arguments: Map<String, Value>,
        has_timeout: bool,
    ) -> anyhow::Result<ToolResult> {
        let look = self.time_left().unwrap_or(MIN_LOOK).min(MAX_LOOK);
        if has_timeout {
            arguments.insert("timeout_ms".to_owned(), u64::try_from(look.as_millis())?.into());
        }
        let limit = (look + CALL_SLACK).min(MAX_TOOL_DEADLINE);
        let params = ToolParams {
            tool: tool.to_owned(),
            arguments: Value::Object(arguments),
            session_id: Some(self.found.session_id.0.clone()),
            path: None,
            safe_mode: None,
            timeout_ms: Some(u64::try_from(limit.as_millis())?),
            ..ToolParams::default()
        };
        Ok(self.daemon.client.request("quack.tool", params, patience(limit)).await?)
    }
}

/// What a tool that failed has said, for a person: a fault with exit code 4 if it was refused as busy or had
/// no time, else one with `otherwise`.
pub(crate) fn failure(result: &ToolResult, otherwise: fn(String) -> Fault) -> Fault {
    let text = crate::render::clean(result.text.strip_prefix("Error: ").unwrap_or(&result.text));
    let text = text.trim_end().to_owned();
    if result.info.busy || result.info.timed_out { Fault::busy(text) } else { otherwise(text) }
}

impl Place {
    /// A directory outside of the session's workspace, and one that is gone, mean the workspace itself.
    fn of_session(found: &FoundInfo, dir: Option<&Path>) -> Self {
        let workspace = PathBuf::from(&found.workspace_path);
        let here = std::fs::canonicalize(dir.unwrap_or_else(|| Path::new(".")));
        let here = here.unwrap_or_else(|_gone| workspace.clone());
        Self::new(workspace, &here)
    }

    /// A place for tests.
    #[cfg(test)]
    pub(crate) fn of(workspace: &str, base: &str) -> Self {
        Self { workspace: workspace.into(), base: base.into() }
    }

    /// Somewhere else than in the workspace one stands in the workspace itself.
    fn new(workspace: PathBuf, here: &Path) -> Self {
        let base = here.strip_prefix(&workspace).map(Path::to_owned).unwrap_or_default();
        Self { workspace, base }
    }

    /// The directory that shown paths are relative to, absolute.
    pub(crate) fn directory(&self) -> PathBuf {
        // Joining an empty path would add a slash.
        if self.base.as_os_str().is_empty() {
            self.workspace.clone()
        } else {
            self.workspace.join(&self.base)
        }
    }

    /// `path` as a person gave it, absolute.
    pub(crate) fn absolute(&self, path: &str) -> PathBuf {
        self.workspace.join(&self.base).join(path)
    }

    /// Splits paths into existing and missing ones, as far as this process can see them. A link to a missing file is
    /// missing.
    pub(crate) fn present(&self, paths: &[String]) -> (Vec<String>, Vec<String>) {
        let is_there = |path: &&String| match self.absolute(path).metadata() {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        let (there, missing): (Vec<&String>, Vec<&String>) = paths.iter().partition(is_there);
        let owned = |paths: Vec<&String>| paths.into_iter().cloned().collect();
        (owned(there), owned(missing))
    }

    /// What to look at, for a tool: `paths` relative to the workspace; the directory itself if there are
    /// none.
    ///
    /// # Errors
    /// A usage error for one that is outside of the workspace.
    pub(crate) fn starts(&self, paths: &[String]) -> Result<Vec<String>, Fault> {
        if paths.is_empty() {
            return Ok(vec![as_start(&self.base)]);
        }
        paths.iter().map(|path| self.start(path)).collect()
    }

    fn start(&self, path: &str) -> Result<String, Fault> {
        let absolute = normal(&self.absolute(path));
        if let Ok(relative) = absolute.strip_prefix(&self.workspace) {
            return Ok(as_start(relative));
        }
        // A name that leads here over a link.
        let real = std::fs::canonicalize(&absolute).unwrap_or_default();
        real.strip_prefix(&self.workspace).map(as_start).map_err(|_outside| {
            let workspace = self.workspace.display();
            Fault::usage(format!("{path} is outside of the workspace {workspace}"))
        })
    }

    /// A glob for a tool. One with a slash is meant from the directory on.
    pub(crate) fn glob(&self, glob: &str) -> String {
        let glob = glob.strip_prefix("./").unwrap_or(glob);
        let is_anchored = glob.trim_end_matches('/').contains('/');
        if self.base.as_os_str().is_empty()
            || !is_anchored
            || glob.starts_with('/')
            || glob.starts_with("**/")
        {
            return glob.to_owned();
        }
        let mut whole = String::new();
        for c in self.base.to_string_lossy().chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '!' | '\\') {
                whole.push('\\');
            }
            whole.push(c);
        }
        whole.push('/');
        whole.push_str(glob);
        whole
    }

    /// A path that a tool gave, for a person: relative to the directory.
    pub(crate) fn shown(&self, path: &str) -> String {
        let mut path = Path::new(path).components();
        let mut base = self.base.components();
        let mut shown = PathBuf::new();
        loop {
            match (path.clone().next(), base.clone().next()) {
                (Some(one), Some(other)) if one == other => {
                    path.next();
                    base.next();
                }
                _ => break,
            }
        }
        shown.extend(base.map(|_| Component::ParentDir));
        shown.push(path.as_path());
        if shown.as_os_str().is_empty() {
            return ".".to_owned();
        }
        shown.to_string_lossy().into_owned()
    }
}

fn as_start(relative: &Path) -> String {
    if relative.as_os_str().is_empty() {
        ".".to_owned()
    } else {
        relative.to_string_lossy().into_owned()
    }
}

/// An absolute path without `.` and `..`, by its spelling.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(base: &str) -> Place {
        Place::of("/ws", base)
    }

    #[test]
    fn paths_go_to_the_workspace_and_come_back_to_the_directory() {
        for (base, given, start, shown) in [
            ("", "src", "src", "src"),
            ("", ".", ".", "."),
            ("", "/ws/a/b", "a/b", "a/b"),
            ("a/b", "c", "a/b/c", "c"),
            ("a/b", ".", "a/b", "."),
            ("a/b", "../c", "a/c", "../c"),
            ("a/b", "../..", ".", "../../."),
            ("a/b", "/ws/x", "x", "../../x"),
            ("a/b", "./d//e/", "a/b/d/e", "d/e"),
        ] {
            let place = place(base);
            assert_eq!(place.starts(&[given.to_owned()]).unwrap(), [start], "{base} {given}");
            assert_eq!(Path::new(&place.shown(start)), Path::new(shown), "{base} {given}");
        }
        assert_eq!(place("a").starts(&[]).unwrap(), ["a"]);
        assert_eq!(place("").starts(&[]).unwrap(), ["."]);
        assert_eq!(place("a").directory(), Path::new("/ws/a"));
        for outside in ["../../x", "/etc/passwd", "/wsx"] {
            let fault = place("a").starts(&[outside.to_owned()]).unwrap_err();
            assert!(fault.to_string().contains("outside of the workspace /ws"), "{fault}");
        }
    }

    #[test]
    fn who_stands_elsewhere_stands_in_the_workspace() {
        let place = Place::new("/ws".into(), Path::new("/elsewhere"));
        assert_eq!(place.directory(), Path::new("/ws"));
        assert_eq!(Place::new("/ws".into(), Path::new("/ws/a")).base, Path::new("a"));
    }

    #[test]
    fn a_glob_with_a_slash_begins_at_the_directory() {
        for (base, given, meant) in [
            ("", "src/*.rs", "src/*.rs"),
            ("a", "*.rs", "*.rs"),
            ("a", "src/*.rs", "a/src/*.rs"),
            ("a", "./src/*.rs", "a/src/*.rs"),
            ("a", "**/x/*.rs", "**/x/*.rs"),
            ("a", "target/", "target/"),
            ("a", "/ws/b/*", "/ws/b/*"),
            ("[x]{y}", "s/*", "\\[x\\]\\{y\\}/s/*"),
        ] {
            assert_eq!(place(base).glob(given), meant, "{base} {given}");
        }
    }
}
