//! Finds what commands wrote into the private home of a confined session. It exists only as long as the worker, so the
//! answer of the command says that these files will be lost.
//!
//! Names that begin with a dot belong to programs, which make their files again. Compares after every command with what
//! was reported before. Called by `bash` and background jobs.

use crate::watched_names::ReportedChanges;
use quackd_protocol::denial::{of_session, one_line};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Timeout of a check. The home is in memory, so that only a very busy machine needs it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Most files that one check visits: a few milliseconds.
const MAX_VISITED: usize = 4000;

/// Most names in the line.
const MAX_NAMED: usize = 4;

/// Files below a name. Another value means that a command has written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Content {
    n_files: usize,
    /// The newest change, in nanoseconds.
    newest: i128,
}

/// The private home and what was reported. Clones share it. By default there is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct LostFiles(Option<Arc<PrivateHome>>);

#[derive(Debug)]
struct PrivateHome {
    path: PathBuf,
    /// Names that existed when the worker began: mounts of the user's files, and the way to the workspace.
    of_start: BTreeSet<OsString>,
    reported: watch::Sender<BTreeMap<OsString, Content>>,
}

impl LostFiles {
    /// Looks at a private home before any command has run.
    pub(crate) fn in_home_blocking(home: PathBuf) -> Self {
        let of_start = names_blocking(&home).collect();
        let reported = watch::Sender::new(BTreeMap::new());
        Self(Some(Arc::new(PrivateHome { path: home, of_start, reported })))
    }

    /// Returns the names below which a command has written since the last check.
    pub(crate) async fn changed(&self) -> Vec<String> {
        let Some(home) = self.0.clone() else { return Vec::new() };
        let look = tokio::task::spawn_blocking(move || home.look_blocking());
        match tokio::time::timeout(PATIENCE, look).await {
            Ok(Ok(names)) => names,
            _ => Vec::new(),
        }
    }
}

impl PrivateHome {
    /// Returns the names below which a command has written since the last check.
    fn look_blocking(&self) -> Vec<String> {
        let mut left = MAX_VISITED;
        let found: BTreeMap<OsString, Content> = names_blocking(&self.path)
            .filter(|name| !self.of_start.contains(name))
            .filter(|name| !name.as_encoded_bytes().starts_with(b"."))
            .map(|name| {
                let content = content_blocking(&self.path.join(&name), &mut left);
                (name, content)
            })
            .collect();
        let mut changed = Vec::new();
        self.reported.send_if_modified(|reported| {
            let is_new =
                |(name, content): &(&OsString, &Content)| reported.get(*name) != Some(content);
            let names = found.iter().filter(is_new).map(|(name, _)| name.to_string_lossy());
            changed = names.map(|name| one_line(&format!("~/{name}"))).collect();
            *reported = found;
            false
        });
        changed
    }
}

/// Lists the first names of a directory.
fn names_blocking(directory: &Path) -> impl Iterator<Item = OsString> {
    let entries = std::fs::read_dir(directory).ok();
    let names = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
    names.take(MAX_VISITED)
}

/// Visits a file, or a directory with everything in it, up to `left` files. Follows no link.
fn content_blocking(path: &Path, left: &mut usize) -> Content {
    let mut content = Content::default();
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let Some(rest) = left.checked_sub(1) else { break };
        *left = rest;
        let Ok(found) = path.symlink_metadata() else { continue };
        let changed = i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec());
        content.n_files += 1;
        content.newest = content.newest.max(changed);
        if found.is_dir() {
            waiting.extend(names_blocking(&path).map(|name| path.join(name)));
        }
    }
    content
}

/// Adds the names to a report. `session` is the label of the session.
pub(crate) fn add_to(told: ReportedChanges, names: &[String], session: &str) -> ReportedChanges {
    if names.is_empty() {
        return told;
    }
    let shown = names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let of = of_session(session);
    let line = format!(
        "[Sandbox: {shown}{more} will be lost: this home exists only as long as the worker of the session, which ends \
         when it is idle, when permissions change and at quack stop. Write into the workspace, or into a directory that \
         you share: quack sandbox set --writable DIR{of}]"
    );
    let lost = names.iter().map(|name| format!("{name} will be lost with the worker"));
    told.and(lost.take(MAX_NAMED).collect(), line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn what_is_written_into_the_home_is_reported_until_nothing_changes() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("code/app")).unwrap();
        let lost = LostFiles::in_home_blocking(home.path().to_owned());
        let line = async || add_to(ReportedChanges::default(), &lost.changed().await, "app").line;
        fs::write(at("code/app/f"), "x").unwrap();
        fs::create_dir_all(at(".cache/tool")).unwrap();
        assert_eq!(line().await, None, "files of the user and of programs");

        fs::create_dir(at("feature")).unwrap();
        let first = line().await.unwrap();
        assert!(first.starts_with("[Sandbox: ~/feature will be lost: "), "{first}");
        assert!(first.ends_with("quack sandbox set --writable DIR --session app]"), "{first}");
        assert_eq!(line().await, None, "nothing new");
        fs::create_dir(at("feature/src")).unwrap();
        fs::write(at("feature/src/new"), "x").unwrap();
        assert!(line().await.is_some(), "written below a reported name");
        fs::write(at("a\u{1b}[1m"), "x").unwrap();
        let hostile = line().await.unwrap();
        assert!(!hostile.contains('\u{1b}') && !hostile.contains("feature"), "{hostile}");
        fs::remove_dir_all(at("feature")).unwrap();
        assert_eq!(line().await, None);
    }

    #[tokio::test]
    async fn a_large_tree_costs_a_bounded_check() {
        let home = tempfile::tempdir().unwrap();
        let lost = LostFiles::in_home_blocking(home.path().to_owned());
        for n in 0..MAX_NAMED + 3 {
            fs::create_dir(home.path().join(format!("d{n}"))).unwrap();
        }
        for n in 0..MAX_VISITED + 10 {
            fs::write(home.path().join(format!("d0/{n}")), "").unwrap();
        }
        let told = add_to(ReportedChanges::default(), &lost.changed().await, "");
        assert!(told.line.unwrap().contains(" and 3 more will be lost"));
        assert_eq!(told.list.len(), MAX_NAMED);
    }
}
