//! The files of the workspace that git tracks: git ignores no name that it tracks already.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Maximum size of the list, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum size of the file that names the repository of a linked worktree, in bytes.
const MAX_LINK_BYTES: u64 = 8 * 1024;

/// Returns the directories that git reads besides the workspace: those of the repository of a linked worktree.
pub(crate) fn repository_of(workspace: &Path) -> Vec<PathBuf> {
    let own = read(&workspace.join(".git")).and_then(|text| {
        let own = text.trim_end().strip_prefix("gitdir: ")?.to_owned();
        workspace.join(own).canonicalize().ok()
    });
    let common = own.as_ref().and_then(|own| {
        let common = read(&own.join("commondir"))?;
        own.join(common.trim_end()).canonicalize().ok()
    });
    // Only a repository that lists this workspace. A session could name any other one.
    let lists = |own: &PathBuf| {
        let back = read(&own.join("gitdir")).map(|back| own.join(back.trim_end()));
        let back = back.and_then(|back| back.parent()?.canonicalize().ok());
        back.as_deref() == Some(workspace)
    };
    let is_listed = own.as_ref().is_some_and(lists);
    let all = [Some(workspace.to_owned()), own.filter(|_| is_listed), common.filter(|_| is_listed)];
    all.into_iter().flatten().collect()
}

fn read(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_LINK_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Lists the tracked files. Empty without git or without a repository: then every ignored directory counts as an output.
#[expect(
    clippy::disallowed_methods,
    reason = "this process is confined, has one task, and ends with its monitor"
)]
pub(crate) fn files(workspace: &Path) -> BTreeSet<PathBuf> {
    let list = || -> Option<Vec<u8>> {
        let mut child = Command::new("git")
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
            .envs([("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1")])
            .args(["-c", "core.fsmonitor=false", "-c", "safe.directory=*", "-C"])
            .arg(workspace)
            .args(["ls-files", "--cached", "-z"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut listed = Vec::new();
        let output = child.stdout.take()?;
        output.take(MAX_BYTES).read_to_end(&mut listed).ok()?;
        // With a longer list git ends, because its output has no reader.
        child.wait().ok()?;
        Some(listed)
    };
    let listed = list().unwrap_or_default();
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| OsString::from_vec(path.to_vec()).into()).collect()
}
