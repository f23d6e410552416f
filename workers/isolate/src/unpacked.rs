//! Brings a copy to the state that the other side has packed. Every byte of the file may be hostile: git checks each object
//! before one of them is used.

use crate::error::WorkError;
use crate::packed::PEER;
use crate::sent::{BASE, MAX_INDEX, NOW, Repository, Sent, Summary, remove, remove_locks};
use crate::{commits, git};
use quackd_isolate::IsolateError;
use quackd_protocol::isolate::MAX_SENT_BYTES;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::DirBuilderExt as _;

/// Largest summary in bytes.
const MAX_SUMMARY: u64 = 16 * 1024 * 1024;

/// Maximum size of an output that is ignored, in bytes.
const MAX_OUTPUT: u64 = 1024 * 1024;

/// File that exists while the files are being changed.
const UNFINISHED: &str = "unfinished";

/// Number of packs from which on the private repository is packed again.
const MAX_PACKS: usize = 24;

/// Faults of old commits in honest repositories.
const OLD_FAULTS: &str = "--strict=missingSpaceBeforeDate=ignore,missingSpaceBeforeEmail=ignore,\
    missingNameBeforeEmail=ignore,missingEmail=ignore,badEmail=ignore,badName=ignore,\
    zeroPaddedDate=ignore,badDateOverflow=ignore,badTimezone=ignore,zeroPaddedFilemode=ignore,\
    nullSha1=ignore";

impl Sent {
    /// Brings the copy to the state in the file. With `is_new` it is made again.
    pub(crate) fn unpack(
        &self,
        is_new: bool,
        user_excludes: Option<&str>,
    ) -> Result<(), WorkError> {
        let _lock = self.lock()?;
        let mut file = File::open(&self.file)?;
        let summary = read_summary(&mut file)?;
        // No worker of the session runs on this side, so nothing uses the copy's repository.
        remove_locks(&self.tree.join(".git"));
        if is_new {
            remove(&self.tree)?;
            remove(&self.directory.join("git"))?;
            DirBuilder::new().mode(0o700).create(&self.tree)?;
        }
        self.prepare()?;
        let Summary { files, has, lengths: [of_files, of_repository, of_index], repository } =
            summary;

        let pack = self.own(&["index-pack", "--stdin", "--fix-thin", OLD_FAULTS]);
        file.seek(SeekFrom::Start(0))?;
        git::run(pack, &mut (&mut file).take(of_files), &mut io::sink(), MAX_OUTPUT)?;
        self.check_files(&files)?;
        // A repository that only the session has made stays there.
        let is_taken = self.limits.is_far || self.tree.join(".git").is_dir();
        let repository = repository.filter(|_| is_taken);
        if let Some(repository) = &repository {
            self.take_objects(repository, of_repository, &mut file)?;
        }

        self.check_out(&files, user_excludes)?;
        if let Some(repository) = repository {
            file.seek(SeekFrom::Start(of_files + of_repository))?;
            self.take_references(&repository)?;
            self.take_index((&mut file).take(of_index))?;
            let tips: String = repository.tips().iter().map(|id| format!("{id}\n")).collect();
            fs::write(self.directory.join(PEER), tips)?;
        }

        let base = if self.limits.is_far { Some(files.as_str()) } else { has.as_deref() };
        if let Some(base) = base.and_then(|base| self.commit(base)) {
            git::output(self.own(&["update-ref", BASE, &base]), &[])?;
        }
        fs::remove_file(&self.file)?;
        self.tidy()?;
        Ok(())
    }

    /// Checks that a commit is complete, and within the limits of a copy.
    fn check_files(&self, commit: &str) -> Result<(), WorkError> {
        if !commits::is_id(commit) {
            return Err(malformed().into());
        }
        let complete = self.own(&["rev-list", "--objects", "--quiet", commit, "--not", "--all"]);
        git::output(complete, &[])?;
        let listed = git::output(self.own(&["ls-tree", "-r", "-z", "--long", commit]), &[])?;
        let (mut files, mut bytes) = (0_u64, 0_u64);
        for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            // Mode, kind, object and size.
            let facts = line.split(|byte| *byte == b'\t').next().unwrap_or_default();
            let facts = String::from_utf8_lossy(facts).into_owned();
            let words: Vec<&str> = facts.split_whitespace().collect();
            if words.get(1) != Some(&"blob") {
                return Err(malformed().into());
            }
            files += 1;
            bytes =
                bytes.saturating_add(words.get(3).and_then(|size| size.parse().ok()).unwrap_or(0));
        }
        let (max_files, max_bytes) = (self.limits.max_files, self.limits.max_bytes);
        if max_files < files || max_bytes < bytes {
            return Err(IsolateError::TooLarge { files, bytes, max_files, max_bytes }.into());
        }
        Ok(())
    }

    /// Changes the files that differ from the commit.
    fn check_out(&self, commit: &str, user_excludes: Option<&str>) -> Result<(), WorkError> {
        let unfinished = self.directory.join(UNFINISHED);
        if unfinished.exists() {
            // The index does not have what an interrupted change has written.
            self.snapshot(user_excludes)?;
        }
        fs::write(&unfinished, "")?;
        // It fails if a file differs, and the files are compared by content then.
        git::output(self.own(&["update-index", "-q", "--really-refresh"]), &[]).ok();
        git::output(self.own(&["read-tree", "--reset", "-u", commit]), &[])?;
        git::output(self.own(&["update-ref", NOW, commit]), &[])?;
        Ok(fs::remove_file(&unfinished)?)
    }

    /// Takes the objects of the copy's repository, and creates it if there is none.
    fn take_objects(&self, repository: &Repository, len: u64, file: &mut File) -> io::Result<()> {
        let tips = repository.tips();
        if tips.iter().any(|id| !commits::is_id(id)) {
            return Err(malformed());
        }
        let git = self.tree.join(".git");
        if !git.is_dir() {
            let is_long = tips.iter().any(|id| 40 < id.len());
            let format = if is_long { "--object-format=sha256" } else { "--object-format=sha1" };
            git::output(self.of_copy(&["init", "--quiet", "--template=", format]), &[])?;
            fs::create_dir_all(git.join("info"))?;
            for (name, text) in &repository.texts {
                fs::write(git.join(name), text)?;
            }
        }
        if 0 < len {
            let pack = self.of_copy(&["index-pack", "--stdin", "--fix-thin", OLD_FAULTS]);
            git::run(pack, &mut file.take(len), &mut io::sink(), MAX_OUTPUT)?;
        }
        let input: String = tips.iter().map(|id| format!("{id}\n")).collect();
        let words = ["rev-list", "--objects", "--quiet", "--stdin", "--not", "--all"];
        git::output(self.of_copy(&words), input.as_bytes()).map(drop)
    }

    /// Sets the references and HEAD that differ.
    fn take_references(&self, repository: &Repository) -> io::Result<()> {
        let words = ["for-each-ref", "--format=%(refname) %(objectname) %(symref)"];
        let listed = git::output(self.of_copy(&words), &[])?;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let own: BTreeMap<&str, &str> = listed
            .lines()
            .filter_map(|line| line.trim_end().split_once(' '))
            .filter(|(_, id)| !id.contains(' '))
            .collect();
        let theirs: BTreeMap<&str, &str> =
            repository.references.iter().map(|(name, id)| (name.as_str(), id.as_str())).collect();

        // Each command ends with NUL, so no name is read as another command.
        let gone = own.keys().filter(|name| !theirs.contains_key(*name));
        let deleted: String = gone.map(|name| format!("delete {name}\0\0")).collect();
        let new = theirs.iter().filter(|(name, id)| own.get(*name) != Some(id));
        let mut updated = String::new();
        for (name, id) in new {
            if !name.starts_with("refs/") || name.contains('\0') {
                return Err(malformed());
            }
            updated.push_str(&format!("update {name}\0{id}\0\0"));
        }
        // A deleted name may be the directory of a new one.
        for commands in [deleted, updated].iter().filter(|commands| !commands.is_empty()) {
            let update = self.of_copy(&["update-ref", "--no-deref", "-z", "--stdin"]);
            git::output(update, commands.as_bytes())?;
        }

        let head = repository.head.as_str();
        let present = git::output(self.of_copy(&["symbolic-ref", "--quiet", "HEAD"]), &[]);
        let present = present.map(|text| String::from_utf8_lossy(&text).trim().to_owned()).ok();
        if present.as_deref() == Some(head) {
            return Ok(());
        }
        let set = if head.starts_with("refs/") {
            self.of_copy(&["symbolic-ref", "HEAD", head])
        } else if commits::is_id(head) {
            self.of_copy(&["update-ref", "--no-deref", "HEAD", head])
        } else {
            return Err(malformed());
        };
        git::output(set, &[]).map(drop)
    }

    /// Replaces the index of the copy's repository in one step.
    fn take_index(&self, mut from: impl io::Read) -> io::Result<()> {
        let staged = self.tree.join(".git/index.lock");
        let mut file = File::options().write(true).create_new(true).open(&staged)?;
        let copied = io::copy(&mut from.by_ref().take(MAX_INDEX), &mut file);
        if copied.as_ref().is_ok_and(|n| 0 < *n) {
            return rustix::fs::rename(&staged, self.tree.join(".git/index")).map_err(Into::into);
        }
        fs::remove_file(&staged)?;
        copied.map(drop)
    }

    /// Packs the private repository again if it has many packs. Objects of states that no side needs go.
    fn tidy(&self) -> io::Result<()> {
        let packs = fs::read_dir(self.directory.join("git/objects/pack"))?.count();
        if MAX_PACKS < packs {
            git::output(self.own(&["repack", "-a", "-d", "-q"]), &[])?;
        }
        Ok(())
    }
}

/// Reads the end of the file.
fn read_summary(file: &mut File) -> io::Result<Summary> {
    let len = file.metadata()?.len();
    let mut end = [0; 8];
    let at = len.checked_sub(8).filter(|_| len <= MAX_SENT_BYTES).ok_or_else(malformed)?;
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut end)?;
    let size = u64::from_be_bytes(end);
    let at = at.checked_sub(size).filter(|_| size <= MAX_SUMMARY).ok_or_else(malformed)?;
    file.seek(SeekFrom::Start(at))?;
    let mut text = Vec::new();
    file.take(size).read_to_end(&mut text)?;
    let summary: Summary = serde_json::from_slice(&text).map_err(|_| malformed())?;
    let parts = summary.lengths.iter().try_fold(0_u64, |sum, part| sum.checked_add(*part));
    if parts == Some(at) { Ok(summary) } else { Err(malformed()) }
}

fn malformed() -> io::Error {
    io::Error::other("what the other machine has sent is malformed")
}
