//! Takes the commits of a session into the repository of its workspace, in two processes: one reads the session's
//! repository, whose settings may name programs, and can write one directory of the copy; the other writes the repository
//! of the workspace, and reads nothing but the file in between.

use crate::git;
use crate::tracked::repository_of;
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::isolate::{IsolatedCommit, IsolatedCommits, MAX_ISOLATED_COMMITS};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::Command;

/// Most references of the workspace whose commits are not exported again.
const MAX_KNOWN: usize = 5_000;

/// Longest subject, in characters.
const MAX_SUBJECT: usize = 200;

/// Longest name of a commit, in hexadecimal digits.
const MAX_ID: usize = 64;

/// Writes the commits of `tree` that the workspace does not have to the file `bundle`. Writes none without commits.
pub(crate) fn export(workspace: &Path, tree: &Path, bundle: &Path) -> io::Result<IsolatedCommits> {
    let known = known_commits(workspace)?;
    let objects = objects_of(workspace);
    let mut excluded = String::new();
    for id in &known {
        excluded.push_str(&format!("^{id}\n"));
    }
    let in_copy = |words: &[&str]| -> Command {
        let mut command = git::command(tree, words);
        // Outside of the session, the objects that its repository borrows are elsewhere.
        command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &objects).env("GIT_DIR", ".git");
        command
    };
    let head = in_copy(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
    if git::output(head, &[]).is_err() {
        return Ok(IsolatedCommits::default());
    }
    let max_count = format!("--max-count={}", MAX_ISOLATED_COMMITS + 1);
    let list = ["rev-list", &max_count, "--format=%H %s", "HEAD", "--stdin"];
    let listed = git::output(in_copy(&list), excluded.as_bytes())?;
    let listed = String::from_utf8_lossy(&listed);
    let mut commits: Vec<IsolatedCommit> = listed.lines().filter_map(commit).collect();
    if commits.is_empty() {
        return Ok(IsolatedCommits::default());
    }
    let n = git::output(in_copy(&["rev-list", "--count", "HEAD", "--stdin"]), excluded.as_bytes())?;
    let n: usize = String::from_utf8_lossy(&n).trim().parse().unwrap_or(commits.len());
    commits.truncate(MAX_ISOLATED_COMMITS);

    let mut create = in_copy(&["bundle", "create", "--quiet"]);
    create.arg(bundle).args(["HEAD", "--stdin"]);
    git::output(create, excluded.as_bytes())?;
    let more = n.saturating_sub(commits.len()) as u64;
    Ok(IsolatedCommits { commits, more, reference: None })
}

/// Takes the exported commits into the repository of the workspace, and lets `reference` name the newest.
pub(crate) fn import(
    workspace: &Path,
    bundle: &Path,
    reference: String,
    commits: IsolatedCommits,
) -> io::Result<IsolatedCommits> {
    let mut fetch = git::command(
        workspace,
        &["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"],
    );
    // A later export replaces an earlier one, also if the session has rewritten its commits.
    fetch.arg(bundle).arg(format!("+HEAD:{reference}"));
    git::output(fetch, &[])?;
    fs::remove_file(bundle).ok();
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

/// Directory of the objects that the session's repository borrows.
fn objects_of(workspace: &Path) -> OsString {
    let repository = repository_of(workspace);
    let common = match repository.as_slice() {
        [_, _, common] => common.clone(),
        _ => workspace.join(".git"),
    };
    let objects = common.join("objects").into_os_string().into_encoded_bytes();
    // The variable is a list of directories with colons between them, each of which may be quoted.
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

fn is_id(text: &str) -> bool {
    (40..=MAX_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn commit(line: &str) -> Option<IsolatedCommit> {
    let (id, subject) = line.split_once(' ')?;
    is_id(id)
        .then(|| IsolatedCommit { id: id.to_owned(), subject: message_line(subject, MAX_SUBJECT) })
}
