//! Finds what commands wrote into the private home of a confined session. It exists only as long as the worker, so the
//! answer of the command says that these files will be lost.
//!
//! The directories that lead to the workspace and to files of the user are private too, and so are their other names.
//! Names that begin with a dot are reported once, because most belong to programs. Caches and histories, which programs
//! make again, are not. Compares after every command with what was reported before. Called by `bash` and background jobs.

use crate::Confinement;
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
pub(crate) const MAX_NAMED: usize = 4;

/// Most directories on the way to the workspace and to files of the user.
const MAX_WAYS: usize = 256;

/// Directories of programs in which each name counts by itself.
const SHARED: [&str; 4] = [".config", ".local", ".local/bin", ".local/share"];

/// Names in the home that programs make for themselves, and again when they are missing.
const CACHES: [&str; 38] = [
    ".ICEauthority",
    ".Xauthority",
    ".bun",
    ".cache",
    ".cargo/.global-cache",
    ".cargo/.package-cache",
    ".cargo/.package-cache-mutate",
    ".cargo/git",
    ".cargo/registry",
    ".ccache",
    ".config/configstore",
    ".config/go",
    ".config/matplotlib",
    ".deno",
    ".dotnet",
    ".eclipse",
    ".gradle",
    ".ipython",
    ".ivy2",
    ".java",
    ".jupyter",
    ".keras",
    ".lesshst",
    ".local/share/pnpm",
    ".local/state",
    ".m2",
    ".mypy_cache",
    ".node-gyp",
    ".npm",
    ".nuget",
    ".nv",
    ".pki",
    ".pnpm-store",
    ".rnd",
    ".sbt",
    ".viminfo",
    ".wget-hsts",
    ".yarn",
];

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
    /// Number of the file system in memory. A mount in it has another one.
    device: u64,
    /// Paths in the home that existed when the worker began: mounts of the user's files, and the way to them and to the
    /// workspace.
    of_start: BTreeSet<PathBuf>,
    reported: watch::Sender<BTreeMap<PathBuf, Content>>,
}

impl LostFiles {
    /// Looks at a private home before any command has run.
    pub(crate) fn in_home_blocking(home: PathBuf) -> Self {
        let device = home.symlink_metadata().map_or(0, |metadata| metadata.dev());
        let reported = watch::Sender::new(BTreeMap::new());
        let mut home = PrivateHome { path: home, device, of_start: BTreeSet::new(), reported };

        let mut waiting = vec![PathBuf::new()];
        while let Some(way) = waiting.pop() {
            for name in names_blocking(&home.path.join(&way)) {
                let path = way.join(name);
                if home.of_start.len() < MAX_WAYS && home.is_own_directory(&path) {
                    waiting.push(path.clone());
                }
                home.of_start.insert(path);
            }
        }

        Self(Some(Arc::new(home)))
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
        let current: BTreeMap<PathBuf, Content> = self
            .new_names_blocking()
            .into_iter()
            .map(|path| {
                let content = if is_of_program(&path) {
                    Content::default()
                } else {
                    content_blocking(&self.path.join(&path), &mut left)
                };
                (path, content)
            })
            .collect();

        let mut changed = Vec::new();
        self.reported.send_if_modified(|reported| {
            let is_new =
                |(path, content): &(&PathBuf, &Content)| reported.get(*path) != Some(content);
            let names = current.iter().filter(is_new).map(|(path, _)| path.display());
            changed = names.map(|name| one_line(&format!("~/{name}"))).collect();
            // A file of a program is reported once, also if the program removes it and makes it again.
            let earlier = std::mem::take(reported).into_iter();
            *reported = earlier.filter(|(path, _)| is_of_program(path)).chain(current).collect();
            false
        });

        changed
    }

    /// Returns the paths in the home that did not exist when the worker began and will be lost with it.
    fn new_names_blocking(&self) -> Vec<PathBuf> {
        let mut waiting = vec![PathBuf::new()];
        let mut new = Vec::new();
        while let Some(way) = waiting.pop() {
            for name in names_blocking(&self.path.join(&way)) {
                let path = way.join(name);
                let is_way =
                    self.of_start.contains(&path) || SHARED.iter().any(|it| path == Path::new(it));
                if is_cache(&path) {
                    continue;
                }

                if is_way {
                    waiting.extend(self.is_own_directory(&path).then_some(path));
                } else if new.len() < MAX_VISITED {
                    new.push(path);
                }
            }
        }

        new
    }

    /// Whether a path is a directory in memory, and no mount and no link.
    fn is_own_directory(&self, path: &Path) -> bool {
        let metadata = self.path.join(path).symlink_metadata();
        metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.dev() == self.device)
    }
}

/// Whether a path has a name of a program at its beginning.
fn is_of_program(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b".")
}

/// Whether a program makes this path again when it is missing.
fn is_cache(path: &Path) -> bool {
    let is_history = path.file_name().is_some_and(|name| {
        let name = name.as_encoded_bytes();
        name.starts_with(b".") && name.ends_with(b"_history")
    });
    is_history || CACHES.iter().any(|cache| path == Path::new(cache))
}

/// Lists the first names of a directory.
pub(crate) fn names_blocking(directory: &Path) -> impl Iterator<Item = OsString> {
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
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let changed =
            i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
        content.n_files += 1;
        content.newest = content.newest.max(changed);

        if metadata.is_dir() {
            waiting.extend(names_blocking(&path).map(|name| path.join(name)));
        }
    }
    content
}

/// Adds the names to a report.
pub(crate) fn add_to(
    changes: ReportedChanges,
    names: &[String],
    confinement: &Confinement,
) -> ReportedChanges {
    if names.is_empty() {
        return changes;
    }
    let named = names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };

    let share = if confinement.is_far {
        String::new()
    } else {
        let of = of_session(&confinement.session);
        format!(", or into a directory that you share: quack sandbox set --writable DIR{of}")
    };
    let line = format!(
        "[Sandbox: {named}{more} will be lost: this home exists only as long as the worker of the session, which ends \
         when it is idle, when permissions change and at quack stop. Write into the workspace{share}]"
    );

    let lost = names.iter().map(|name| format!("{name} will be lost with the worker"));
    changes.and(lost.take(MAX_NAMED).collect(), line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::policy::Policy;
    use std::fs;

    #[tokio::test]
    async fn what_is_written_into_the_home_is_reported_until_nothing_changes() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("code/deep/app")).unwrap();
        fs::create_dir_all(at(".cargo")).unwrap();
        let lost = LostFiles::in_home_blocking(home.path().to_owned());
        let app = Confinement::new(Policy::default(), true, "app".to_owned());
        let line = async || add_to(ReportedChanges::default(), &lost.changed().await, &app).line;
        for directory in
            [".cache/tool", ".config", ".local/share", ".local/state/x", ".cargo/registry"]
        {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at(".python_history"), "x").unwrap();
        assert_eq!(line().await, None, "files that programs make again");

        let names = async || lost.changed().await;
        for name in
            ["code/note", "code/deep/x", "code/deep/app/y", ".netrc", ".config/tool", ".cargo/bin"]
        {
            fs::write(at(name), "x").unwrap();
            assert_eq!(names().await, [format!("~/{name}")]);
        }
        fs::create_dir_all(at(".local/bin")).unwrap();
        fs::write(at(".local/bin/tool"), "x").unwrap();
        fs::write(at(".local/share/data"), "x").unwrap();
        assert_eq!(names().await, ["~/.local/bin/tool", "~/.local/share/data"]);
        // Of programs only once, of others with each change.
        fs::remove_file(at(".netrc")).unwrap();
        assert!(names().await.is_empty());
        fs::write(at(".netrc"), "y").unwrap();
        assert!(names().await.is_empty());
        fs::write(at("code/note"), "longer").unwrap();
        assert_eq!(names().await, ["~/code/note"]);

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
        let told =
            add_to(ReportedChanges::default(), &lost.changed().await, &Confinement::default());
        assert!(told.line.unwrap().contains(" and 3 more will be lost"));
        assert_eq!(told.list.len(), MAX_NAMED);
    }
}
