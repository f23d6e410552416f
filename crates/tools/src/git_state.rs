//! Branch and state of the workspace's repository, for the prompt of the session's agent.
//!
//! Git runs like a command of the session that may not write, with settings that keep it from running programs which the
//! repository names: its file monitor, its hooks, its filters and its helpers for missing objects.

use crate::bash::path_outside;
use crate::call_limits::CallLimits;
use crate::command_line::CommandLine;
use crate::{Toolbox, unsigned_commits};
use quackd_process::{Captured, EndedBy, Exit};
use quackd_protocol::environment::GIT_SETTINGS_VARIABLES;
use quackd_protocol::foreign_text::one_line;
use quackd_protocol::tools::BASH;
use quackd_sandbox::Root;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for both commands together. In a repository that takes longer, only the branch is known.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most bytes of `HEAD`, and most characters of a branch that are shown.
const MAX_HEAD: u64 = 1024;
const MAX_BRANCH: usize = 100;

/// Most filters that a repository may have. With more, git is not run.
const MAX_FILTERS: usize = 64;

/// Settings that keep git from running other programs.
const SETTINGS: [(&str, &str); 4] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("status.submoduleSummary", "false"),
];

/// Returns `head`, which changes with the branch, and `text`, the branch and the number of changes. Without `text` if
/// `head` is still `known`. `None` without a repository.
pub(crate) async fn git_state(
    toolbox: &Toolbox,
    root: &Arc<Root>,
    known: &str,
    bounds: &CallLimits,
) -> Option<Value> {
    let begin = Instant::now();

    let workspace = root.path().to_owned();
    let head = bounds.run_blocking(move || head_blocking(&workspace)).await.ok()??;

    if head == known {
        return Some(json!({ "head": head }));
    }

    let branch = branch(&head)?;
    let until = begin + PATIENCE;
    let text = match changes(toolbox, root.path(), until, bounds).await {
        Some(changes) => format!("{branch}, {changes}"),
        None => branch,
    };
    Some(json!({ "head": head, "text": text }))
}

/// Reads the name of the branch, or the commit.
fn head_blocking(workspace: &Path) -> Option<String> {
    let path = unsigned_commits::git_directory_blocking(workspace)?.join("HEAD");
    // A command can replace the file by a link, or by a pipe, on which a blocking open would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }

    let mut text = String::new();
    file.take(MAX_HEAD).read_to_string(&mut text).ok()?;
    branch(text.trim()).map(|_| text.trim().to_owned())
}

/// Returns the branch for display. `None` if the text is no HEAD of git.
fn branch(head: &str) -> Option<String> {
    if let Some(name) = head.strip_prefix("ref: refs/heads/") {
        let name: String = name.chars().take(MAX_BRANCH).collect();
        return Some(format!("branch {:?}", one_line(&name)));
    }
    let is_commit = head.len() >= 40 && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| format!("no branch, at commit {}", head.get(..12).unwrap_or_default()))
}

/// Counts the changes. `None` if git does not answer in time, or may not be run.
async fn changes(
    toolbox: &Toolbox,
    workspace: &Path,
    until: Instant,
    bounds: &CallLimits,
) -> Option<String> {
    if toolbox.confinement.refuse_unconfined(BASH.name).is_some() {
        return None;
    }

    // `git status` runs the filters that the settings of the repository name. List them first, to turn them off.
    let filters = ["config", "--null", "--name-only", "--get-regexp", r"^filter\..*\."];
    let git = Git { toolbox, workspace, until, bounds };
    // Exit code 1: there is none.
    let (_, listed) = git.run(&filters, &[]).await?;

    // An incomplete list would leave some filters on.
    if !listed.is_whole() {
        return None;
    }
    let settings = without_filters(&[listed.head, listed.tail].concat())?;

    let status = ["status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all"];
    let (code, listed) = git.run(&status, &settings).await?;
    (code == 0).then(|| counted(&listed))
}

/// Returns the settings that turn off these filters. `None` if there are too many.
fn without_filters(names: &[u8]) -> Option<Vec<(String, String)>> {
    let names = String::from_utf8_lossy(names);
    let mut filters: Vec<&str> = names
        .split('\0')
        .filter_map(|name| Some(name.strip_prefix("filter.")?.rsplit_once('.')?.0))
        .collect();

    filters.sort_unstable();
    filters.dedup();

    let of = |filter: &str| {
        [("clean", ""), ("process", ""), ("required", "false")]
            .map(|(key, value)| (format!("filter.{filter}.{key}"), value.to_owned()))
    };
    (filters.len() <= MAX_FILTERS).then(|| filters.into_iter().flat_map(of).collect())
}

/// Returns the number of files in the output of `git status`.
fn counted(listed: &Captured) -> String {
    let (mut changed, mut new) = (0_usize, 0_usize);
    let mut count = |bytes: &[u8]| {
        for record in bytes.split(|byte| *byte == 0).filter(|record| !record.is_empty()) {
            *if record.starts_with(b"??") { &mut new } else { &mut changed } += 1;
        }
    };

    let is_whole = listed.is_whole();
    if is_whole {
        count(&[listed.head.as_slice(), &listed.tail].concat());
    } else {
        // The tail begins within a record.
        count(&listed.head);
    }

    let least = if is_whole { "" } else { "at least " };
    match (changed, new) {
        (0, 0) => "no changes".to_owned(),
        (changed, new) => format!("{least}{changed} changed and {new} untracked files"),
    }
}

/// Git in the workspace of a session.
struct Git<'a> {
    toolbox: &'a Toolbox,
    workspace: &'a Path,
    until: Instant,
    bounds: &'a CallLimits,
}

impl Git<'_> {
    /// Runs git with these settings. Returns its exit code and its output. `None` if it does not end in time.
    async fn run(&self, args: &[&str], settings: &[(String, String)]) -> Option<(i32, Captured)> {
        let Self { toolbox, workspace, until, bounds } = self;
        let path = toolbox.variable("PATH").map(str::to_owned);
        let inside = workspace.to_path_buf();
        let path = move || path_outside(path.as_deref(), &inside);
        let path = bounds.run_blocking(path).await.ok()?;

        let mut env = toolbox.env.clone();
        let is_kept = |name: &str| {
            GIT_SETTINGS_VARIABLES.contains(&name)
                || name != "PATH" && !name.starts_with("GIT_CONFIG_")
        };
        env.retain(|(name, _)| is_kept(name));
        env.push(("PATH".to_owned(), path));
        // Git must not refresh the index, and must not wait for a password.
        for name in ["GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT"] {
            env.push((name.to_owned(), "0".to_owned()));
        }

        // Missing objects are not fetched: that would run a program of the repository's settings.
        env.push(("GIT_NO_LAZY_FETCH".to_owned(), "1".to_owned()));
        env.push(("GIT_ALLOW_PROTOCOL".to_owned(), "none".to_owned()));

        let fixed = SETTINGS.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let settings = || fixed.iter().chain(settings);
        env.push(("GIT_CONFIG_COUNT".to_owned(), settings().count().to_string()));
        for (n, (key, value)) in settings().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{n}"), key.clone()));
            env.push((format!("GIT_CONFIG_VALUE_{n}"), value.clone()));
        }

        let args = args.iter().map(OsString::from).collect();
        let (program, args) = toolbox.kept_from_writing("git".into(), args);
        let command_line = CommandLine {
            line: String::new(),
            program,
            args,
            cwd: workspace.to_path_buf(),
            env,
            limits: toolbox.limits.clone(),
            group: toolbox.group.clone(),
            spawn_thread: toolbox.spawn_thread.clone(),
        };

        let command = quackd_process::Command {
            deadline: until.saturating_duration_since(Instant::now()),
            cancel: bounds.cancel.clone(),
            ..command_line.command("git-state".to_owned())
        };

        let finished = quackd_process::run(command).await.ok()?;
        match (finished.ended_by, finished.exit) {
            (EndedBy::Itself, Exit::Code(code)) => Some((code, finished.stdout)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_a_branch_or_a_commit_and_nothing_else() {
        assert_eq!(branch("ref: refs/heads/a/b").unwrap(), "branch \"a/b\"");
        assert_eq!(branch("ref: refs/heads/a\u{1b}").unwrap(), "branch \"a\u{fffd}\"");
        let commit = branch("0123456789abcdef0123456789abcdef01234567").unwrap();
        assert_eq!(commit, "no branch, at commit 0123456789ab");
        for other in ["", "ref: refs/tags/x", "root:x:0:0:", "0123"] {
            assert_eq!(branch(other), None, "{other}");
        }
    }

    #[test]
    fn changes_are_counted_and_a_cut_list_says_so() {
        let of = |text: &str, more: u64| {
            let head = text.as_bytes().to_vec();
            let total = u64::try_from(head.len()).unwrap() + more;
            counted(&Captured { head, tail: Vec::new(), total })
        };
        assert_eq!(of("", 0), "no changes");
        assert_eq!(of(" M a\0D  c\0?? b\0", 0), "2 changed and 1 untracked files");
        assert_eq!(of("?? a\0", 9), "at least 0 changed and 1 untracked files");
    }

    #[test]
    fn every_filter_is_turned_off() {
        let settings =
            without_filters(b"filter.lfs.clean\0filter.a.b=c.process\0filter.lfs.smudge\0")
                .unwrap();
        let keys: Vec<&str> = settings.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys.len(), 6);
        assert!(keys.contains(&"filter.a.b=c.process") && keys.contains(&"filter.lfs.clean"));
        let many: String = (0..=MAX_FILTERS).map(|n| format!("filter.{n}.clean\0")).collect();
        assert_eq!(without_filters(many.as_bytes()), None);
    }
}
