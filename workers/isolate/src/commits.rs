//! Takes the commits of a session into the repository of its workspace, in two processes: one reads the session's
//! repository, whose settings may name programs, and can write one directory of the copy; the other writes the repository
//! of the workspace, and reads the file in between.

use crate::git;
use crate::tracked::git_directories;
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::isolate::{IsolatedCommit, IsolatedCommits, MAX_ISOLATED_COMMITS};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::Command;

/// Maximum number of references of the workspace whose commits are not exported again.
const MAX_KNOWN: usize = 5_000;

/// Maximum size of the objects of one export, in bytes.
const MAX_PACK: u64 = 1024 * 1024 * 1024;

/// Maximum size of an output that is ignored, in bytes.
const MAX_OUTPUT: u64 = 1024 * 1024;

/// Maximum length of a subject, in characters.
const MAX_SUBJECT: usize = 200;

/// Maximum length of the name of a commit, in hexadecimal digits.
const MAX_ID: usize = 64;

/// Lists the commits of `tree` that the workspace does not have, and writes their objects to the file `pack` if there is
/// one.
pub(crate) fn export(
    workspace: &Path,
    tree: &Path,
    pack: Option<&Path>,
) -> io::Result<IsolatedCommits> {
    let git = tree.join(".git");
    // A file or another common directory would lead to a repository that the session must not see.
    if !fs::symlink_metadata(&git)?.is_dir() || git.join("commondir").exists() {
        return Err(io::Error::other("the session's repository was replaced by something else"));
    }

    let objects = objects_of(workspace);
    let in_copy = |words: &[&str]| -> Command {
        let mut command = git::command(tree, words);
        // Outside of the session, the objects that its repository borrows are elsewhere.
        command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &objects).env("GIT_DIR", ".git");
        command
    };

    let head = in_copy(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
    // Without a commit there is nothing to export.
    let Ok(head) = git::output(head, &[]) else { return Ok(IsolatedCommits::default()) };

    let mut range = String::from_utf8_lossy(&head).into_owned();
    for id in known_commits(workspace)? {
        range.push_str(&format!("^{id}\n"));
    }

    let max_count = format!("--max-count={MAX_ISOLATED_COMMITS}");
    let list = ["rev-list", &max_count, "--format=%H %s", "--stdin"];
    let listed = git::output(in_copy(&list), range.as_bytes())?;
    let commits: Vec<IsolatedCommit> =
        String::from_utf8_lossy(&listed).lines().filter_map(commit).collect();
    if commits.is_empty() {
        return Ok(IsolatedCommits::default());
    }

    // The list is cut, this number is not.
    let n = git::output(in_copy(&["rev-list", "--count", "--stdin"]), range.as_bytes())?;
    let n: usize = String::from_utf8_lossy(&n).trim().parse().unwrap_or(commits.len());

    if let Some(pack) = pack {
        // A thin pack suffices: the workspace has the objects that it refers to.
        let words = ["pack-objects", "--revs", "--thin", "--delta-base-offset", "--stdout", "-q"];
        let mut written = fs::File::create(pack)?;
        git::run(in_copy(&words), &mut range.as_bytes(), &mut written, MAX_PACK)?;
    }

    let more = n.saturating_sub(commits.len()) as u64;
    Ok(IsolatedCommits { commits, more, reference: None })
}

/// Takes the exported commits into the repository of the workspace, and lets `reference` name the newest.
pub(crate) fn import(
    workspace: &Path,
    pack: &Path,
    reference: String,
    commits: IsolatedCommits,
) -> io::Result<IsolatedCommits> {
    let Some(newest) = commits.commits.first() else { return Ok(commits) };
    if !is_id(&newest.id) {
        return Err(io::Error::other("the name of the newest commit is not valid"));
    }

    let in_workspace = |words: &[&str]| git::command(workspace, words);

    // It checks each object, and that those it names exist.
    let index = in_workspace(&["index-pack", "--stdin", "--fix-thin", "--strict"]);
    git::run(index, &mut fs::File::open(pack)?, &mut io::sink(), MAX_OUTPUT)?;
    let connected =
        in_workspace(&["rev-list", "--objects", "--quiet", &newest.id, "--not", "--all"]);
    git::output(connected, &[])?;

    // A later export replaces an earlier one, also if the session has rewritten its commits.
    git::output(in_workspace(&["update-ref", &reference, &newest.id]), &[])?;
    fs::remove_file(pack)?;
    Ok(IsolatedCommits { reference: Some(reference), ..commits })
}

/// Returns the names of the commits that the references of the workspace name.
fn known_commits(workspace: &Path) -> io::Result<BTreeSet<String>> {
    let count = format!("--count={MAX_KNOWN}");
    let words = [
        "for-each-ref",
        &count,
        "--format=%(objectname)",
        "refs/heads",
        "refs/remotes",
        "refs/tags",
    ];

    let mut listed = git::output(git::command(workspace, &words), &[])?;
    // Without a first commit there is none.
    listed.extend(
        git::output(git::command(workspace, &["rev-parse", "--verify", "--quiet", "HEAD"]), &[])
            .unwrap_or_default(),
    );

    let listed = String::from_utf8_lossy(&listed);
    Ok(listed.lines().filter(|id| is_id(id)).map(str::to_owned).collect())
}

/// Directory of the objects that the session's repository borrows, as a list of one for git.
pub(crate) fn objects_of(workspace: &Path) -> OsString {
    let common = git_directories(workspace).pop().unwrap_or_else(|| workspace.join(".git"));
    let objects = common.join("objects").into_os_string().into_encoded_bytes();

    // The list has colons between directories, each of which may be quoted.
    let mut quoted = vec![b'"'];
    for byte in objects {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(byte);
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

pub(crate) fn is_id(text: &str) -> bool {
    (40..=MAX_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn commit(line: &str) -> Option<IsolatedCommit> {
    let (id, subject) = line.split_once(' ')?;
    is_id(id)
        .then(|| IsolatedCommit { id: id.to_owned(), subject: message_line(subject, MAX_SUBJECT) })
}
