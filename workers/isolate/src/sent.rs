//! A copy whose session works on another machine. Both sides pack their state into one file, and bring their copy to the
//! state in the other side's file. Git makes, checks and applies packs; no other program compares or merges files.
//!
//! A private repository next to the copy has one commit for each state of the files, with every file and without filters
//! and conversions. The file has the objects of that commit and of the copy's own repository that the other side does not
//! have, the copy's index, and a [`Summary`] at its end.

use crate::error::WorkError;
use crate::{commits, git};
use quackd_isolate::{SentFiles, SentNode};
use quackd_protocol::isolate::{SENT_DIRECTORY, SENT_FILE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// References of the private repository: the last state here, and the last one of this side that the other side has.
pub(crate) const NOW: &str = "refs/sent/now";
pub(crate) const BASE: &str = "refs/sent/base";

/// Most references of a copy's repository.
pub(crate) const MAX_REFERENCES: usize = 20_000;

/// Largest index, and largest file of settings, in bytes.
pub(crate) const MAX_INDEX: u64 = 64 * 1024 * 1024;
pub(crate) const MAX_TEXT: u64 = 1024 * 1024;

/// Deepest directory that is made writable before its removal, or in which locks are searched.
const MAX_DEPTH: usize = 256;

/// Most entries that are read in search of locks.
const MAX_LOCK_ENTRIES: usize = 500_000;

/// Settings of the private repository: files stay byte for byte.
const SETTINGS: &[&str] = &[
    "core.bare=false",
    "core.symlinks=true",
    "core.fileMode=true",
    "core.autocrlf=false",
    "core.ignoreCase=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.compression=1",
    "fastimport.unpackLimit=1",
];

/// Attributes of the private repository. They come before those of every `.gitattributes`.
const ATTRIBUTES: &str = "* -text !eol !crlf !filter !ident !working-tree-encoding\n";

/// The copy and its private repository.
pub(crate) struct Sent {
    /// Directory with the files.
    pub(crate) tree: PathBuf,
    /// Directory for what is sent.
    pub(crate) directory: PathBuf,
    /// The file that goes to the other side, or came from it.
    pub(crate) file: PathBuf,
    /// Borrowed objects of the copy's repository, as a list for git.
    objects: OsString,
    pub(crate) limits: SentLimits,
}

/// The side, and the limits of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentLimits {
    pub(crate) is_far: bool,
    pub(crate) max_files: u64,
    pub(crate) max_bytes: u64,
}

/// End of the file, as JSON. The parts before it follow one another without a gap. Every field may be hostile.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Commit with the files.
    pub(crate) files: String,
    /// Commit of the other side that this side has.
    pub(crate) has: Option<String>,
    /// Length of the pack with the files, of that of the copy's repository, and of the index, in bytes.
    pub(crate) lengths: [u64; 3],
    /// The copy's repository.
    pub(crate) repository: Option<Repository>,
}

/// State of the copy's repository.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Repository {
    /// The branch, such as `refs/heads/main`, or the commit.
    pub(crate) head: String,
    /// Names and objects of the references.
    pub(crate) references: Vec<(String, String)>,
    /// Settings and other texts, by path in the repository. Only to the other machine.
    pub(crate) texts: Vec<(String, String)>,
}

impl Repository {
    /// Objects that references and HEAD name.
    pub(crate) fn tips(&self) -> BTreeSet<String> {
        let ids = self.references.iter().map(|(_, id)| id.clone());
        ids.chain(commits::is_id(&self.head).then(|| self.head.clone())).collect()
    }
}

impl Sent {
    pub(crate) fn new(workspace: &Path, directory: &Path, limits: SentLimits) -> Self {
        Self {
            tree: directory.join("tree"),
            directory: directory.join(SENT_DIRECTORY),
            file: directory.join(SENT_FILE),
            objects: commits::objects_of(workspace),
            limits,
        }
    }

    /// Locks the copy against other transfers for as long as the file is open, and removes what killed programs have left
    /// in the private repository.
    ///
    /// # Errors
    /// Another process moves the copy.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.directory.join("lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_held| io::Error::other("an earlier transfer of the copy has not ended"))?;
        remove_locks(&self.directory.join("git"));
        Ok(lock)
    }

    /// Creates the private repository, unless it exists.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        let repository = self.directory.join("git");
        if repository.join("info/attributes").exists() {
            return Ok(());
        }
        remove(&repository)?;
        let made =
            git::command(&self.directory, &["init", "--quiet", "--bare", "--template=", "git"]);
        git::output(made, &[]).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other("git is not installed"),
            _ => error,
        })?;
        fs::create_dir_all(repository.join("info"))?;
        fs::write(repository.join("info/attributes"), ATTRIBUTES)
    }

    /// Prepares a call of git on the files with the private repository.
    pub(crate) fn own(&self, words: &[&str]) -> Command {
        let settings = SETTINGS.iter().flat_map(|setting| ["-c", setting]);
        let words: Vec<&str> = settings.chain(words.iter().copied()).collect();
        let mut command = git::command(&self.tree, &words);
        command.env("GIT_DIR", self.directory.join("git")).env("GIT_WORK_TREE", &self.tree);
        name_author(&mut command);
        command
    }

    /// Prepares a call of git with the copy's repository. A session may have written its settings.
    pub(crate) fn of_copy(&self, words: &[&str]) -> Command {
        let mut command = git::command(&self.tree, words);
        command.env("GIT_DIR", ".git").env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &self.objects);
        name_author(&mut command);
        command
    }

    /// Returns the commit that a reference of the private repository names.
    pub(crate) fn commit(&self, name: &str) -> Option<String> {
        let name = format!("{name}^{{commit}}");
        let found =
            git::output(self.own(&["rev-parse", "--verify", "--quiet", &name]), &[]).ok()?;
        let id = String::from_utf8_lossy(&found).trim().to_owned();
        commits::is_id(&id).then_some(id)
    }

    /// Returns the paths of a commit of the private repository.
    fn paths_of(&self, commit: &str) -> io::Result<BTreeSet<PathBuf>> {
        let listed = git::output(self.own(&["ls-tree", "-r", "-z", "--name-only", commit]), &[])?;
        let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| OsString::from_vec(path.to_vec()).into()).collect())
    }

    /// Commits the present files to the private repository, and brings its index to them. Returns the number of files and
    /// the lines about those that are left out.
    pub(crate) fn snapshot(
        &self,
        user_excludes: Option<&str>,
    ) -> Result<(u64, Vec<String>), WorkError> {
        let base = self.commit(BASE);
        // The copy on this machine has nothing but what was copied.
        let known = match &base {
            Some(base) if self.limits.is_far => Some(self.paths_of(base)?),
            _ => None,
        };
        let files = SentFiles {
            tree: &self.tree,
            user_excludes,
            known: known.as_ref(),
            max_files: self.limits.max_files,
            max_bytes: self.limits.max_bytes,
        };

        let mut size = None;
        let feed = |stdin: &mut std::process::ChildStdin| -> Result<(), WorkError> {
            let mut to = io::BufWriter::with_capacity(128 * 1024, stdin);
            write!(to, "commit {NOW}\ncommitter quackd <quackd> 0 +0000\ndata 0\n")?;
            if let Some(base) = &base {
                write!(to, "from {base}\ndeleteall\n")?;
            }
            size = Some(files.for_each(&mut |path, node| write_node(&mut to, path, node))?);
            to.write_all(b"done\n")?;
            Ok(to.flush()?)
        };
        let import = self.own(&["fast-import", "--quiet", "--force", "--done"]);
        git::run_fed(import, feed, &mut io::sink(), MAX_TEXT)?;
        git::output(self.own(&["read-tree", "--reset", NOW]), &[])?;
        let size = size.unwrap_or_default();
        Ok((size.files, size.notes))
    }
}

/// Names the author that git asks for, also where it writes no commit.
fn name_author(command: &mut Command) {
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "quackd").env(format!("GIT_{who}_EMAIL"), "quackd");
    }
}

/// Writes one file for `git fast-import`.
fn write_node(to: &mut impl Write, path: &Path, node: SentNode) -> io::Result<()> {
    let (mode, len) = match &node {
        SentNode::File { len, is_executable: true, .. } => ("100755", *len),
        SentNode::File { len, .. } => ("100644", *len),
        SentNode::Link(target) => ("120000", target.as_os_str().len() as u64),
    };
    write!(to, "M {mode} inline ")?;
    to.write_all(&quoted(path.as_os_str().as_bytes()))?;
    write!(to, "\ndata {len}\n")?;
    match node {
        SentNode::Link(target) => to.write_all(target.as_os_str().as_bytes())?,
        SentNode::File { file, len, .. } => {
            let copied = io::copy(&mut io::Read::take(file, len), to)?;
            // The file was cut while it was read. The next state has what it is then.
            io::copy(&mut io::Read::take(io::repeat(0), len.saturating_sub(copied)), to)?;
        }
    }
    to.write_all(b"\n")
}

/// Quotes a path for `git fast-import`.
fn quoted(path: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in path {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\n' => quoted.extend(b"\\n"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    quoted
}

/// Removes the locks and unfinished packs of killed programs from a repository that no other program uses. Links are not
/// followed.
pub(crate) fn remove_locks(repository: &Path) {
    let is_lock = |name: &[u8]| name.ends_with(b".lock");
    let mut left = files_in(repository, is_lock);
    left.extend(files_in(&repository.join("objects/pack"), |name| name.starts_with(b"tmp_")));

    let mut directories = vec![(repository.join("refs"), 0)];
    let mut n_read = 0;
    while let Some((directory, depth)) = directories.pop() {
        left.extend(files_in(&directory, is_lock));
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten().take(MAX_LOCK_ENTRIES.saturating_sub(n_read)) {
            n_read += 1;
            if depth < MAX_DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push((entry.path(), depth + 1));
            }
        }
    }
    for path in left {
        // Git reports a lock that stays.
        fs::remove_file(path).ok();
    }
}

/// Returns the files of a directory whose names are wanted.
fn files_in(directory: &Path, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let entries = entries.flatten().take(MAX_LOCK_ENTRIES);
    let found = entries.filter(|entry| is_wanted(entry.file_name().as_bytes()));
    found.map(|entry| entry.path()).collect()
}

/// Removes a directory, if it exists, whatever permissions its directories have.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    if fs::remove_dir_all(directory).is_err() {
        make_writable(directory, 0);
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives the owner all rights to the directories below a directory that is removed. Links are not followed.
fn make_writable(directory: &Path, depth: usize) {
    let Ok(metadata) = fs::symlink_metadata(directory) else { return };
    if !metadata.is_dir() || MAX_DEPTH < depth {
        return;
    }
    // The removal reports what is left.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).ok();
    let Ok(entries) = fs::read_dir(directory) else { return };
    entries.flatten().for_each(|entry| make_writable(&entry.path(), depth + 1));
}
