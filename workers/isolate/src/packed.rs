//! Packs the state of a copy for the other side.

use crate::error::WorkError;
use crate::sent::{
    BASE, MAX_INDEX, MAX_REFERENCES, MAX_TEXT, NOW, Repository, Sent, Summary, remove,
};
use crate::{commits, git};
use quackd_protocol::isolate::{MAX_SENT_BYTES, PackedTree};
use quackd_sandbox::git_config::{Entry, parse, to_text};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

/// File with the objects of the copy's repository that the other side has.
pub(crate) const PEER: &str = "peer";

/// Texts of the copy's repository that go to the other machine, besides its settings.
const TEXTS: &[&str] = &["info/exclude", "info/attributes", "shallow"];

/// A pack without objects, in bytes.
const EMPTY_PACK: u64 = 32;

impl Sent {
    /// Writes the state of the copy to the file. With `is_new` the other side has nothing.
    pub(crate) fn pack(
        &self,
        is_new: bool,
        user_excludes: Option<&str>,
    ) -> Result<PackedTree, WorkError> {
        let _lock = self.lock()?;
        if is_new {
            remove(&self.directory.join("git"))?;
            fs::remove_file(self.directory.join(PEER)).ok();
        }
        self.prepare()?;
        let (files, notes) = self.snapshot(user_excludes)?;
        let now = self.commit(NOW).ok_or_else(|| io::Error::other("the files have no commit"))?;
        let base = self.commit(BASE);
        let is_whole = base.is_none();

        // Left by an interrupted transfer.
        fs::remove_file(&self.file).ok();
        let mut file = File::options().write(true).create_new(true).open(&self.file)?;
        let excluded = base.as_ref().map(|base| format!("^{base}\n")).unwrap_or_default();
        let range = format!("{now}\n{excluded}");
        let mut lengths = [0; 3];
        let pack = self.own(&[
            "pack-objects",
            "--revs",
            "--thin",
            "--delta-base-offset",
            "--stdout",
            "-q",
        ]);
        git::run(pack, &mut range.as_bytes(), &mut file, MAX_SENT_BYTES)?;
        lengths[0] = file.stream_position()?;

        let repository = self.repository()?;
        if let Some(repository) = &repository {
            (lengths[1], lengths[2]) = self.pack_repository(repository, &mut file)?;
        }
        let has = if self.limits.is_far { base } else { None };
        let summary = Summary { files: now, has, lengths, repository };
        let summary = serde_json::to_vec(&summary).map_err(io::Error::other)?;
        file.write_all(&summary)?;
        file.write_all(&(summary.len() as u64).to_be_bytes())?;
        Ok(PackedTree { files, bytes: file.stream_position()?, is_whole, notes })
    }

    /// Reads the state of the copy's repository. `None` without a repository.
    fn repository(&self) -> io::Result<Option<Repository>> {
        let git = self.tree.join(".git");
        // A file or another common directory would lead to another repository.
        let is_own = fs::symlink_metadata(&git).is_ok_and(|metadata| metadata.is_dir());
        if !is_own || git.join("commondir").exists() {
            return Ok(None);
        }

        let branch = git::output(self.of_copy(&["symbolic-ref", "--quiet", "HEAD"]), &[]);
        let head = match branch {
            Ok(branch) => branch,
            Err(_detached) => git::output(self.of_copy(&["rev-parse", "--verify", "HEAD"]), &[])?,
        };
        let count = format!("--count={}", MAX_REFERENCES + 1);
        let words = ["for-each-ref", &count, "--format=%(objectname) %(refname) %(symref)"];
        let listed = git::output(self.of_copy(&words), &[])?;
        let listed = String::from_utf8(listed).map_err(io::Error::other)?;
        let reference = |line: &str| -> Option<(String, String)> {
            let (id, name) = line.trim_end().split_once(' ')?;
            // A symbolic reference has a third word.
            (!name.contains(' ')).then(|| (name.to_owned(), id.to_owned()))
        };
        let references: Vec<_> = listed.lines().filter_map(reference).collect();
        if MAX_REFERENCES < references.len() {
            let text = format!("the repository has more than {MAX_REFERENCES} references");
            return Err(io::Error::other(text));
        }
        Ok(Some(Repository {
            head: String::from_utf8_lossy(&head).trim().to_owned(),
            references,
            texts: if self.limits.is_far { Vec::new() } else { self.texts() },
        }))
    }

    /// Settings and other texts of the copy's repository, without addresses of other repositories: those may contain
    /// passwords, and no credential of the user is there.
    fn texts(&self) -> Vec<(String, String)> {
        let git = self.tree.join(".git");
        let mut texts = Vec::new();
        if let Some(config) = text(&git.join("config")) {
            let is_kept = |entry: &Entry| {
                // A branch may have the address of its remote repository in place of a name.
                let is_remote = entry.section == "branch" && entry.key.ends_with("remote");
                let value = entry.value.as_deref().unwrap_or_default();
                let is_address = entry.section == "remote" && entry.key.ends_with("url")
                    || is_remote && value.contains([':', '@']);
                let is_storage = entry.section == "extensions" && entry.key == "refstorage";
                !is_address && !is_storage
            };
            let kept: Vec<Entry> = parse(&config).into_iter().filter(is_kept).collect();
            texts.push(("config".to_owned(), to_text(kept.iter())));
        }
        let others =
            TEXTS.iter().filter_map(|name| Some(((*name).to_owned(), text(&git.join(name))?)));
        texts.extend(others);
        texts
    }

    /// Writes the objects that the other side does not have, and the index. Returns the length of both.
    fn pack_repository(&self, repository: &Repository, file: &mut File) -> io::Result<(u64, u64)> {
        let tips = repository.tips();
        let peer: BTreeSet<String> = text(&self.directory.join(PEER))
            .map(|text| text.lines().filter(|id| commits::is_id(id)).map(str::to_owned).collect())
            .unwrap_or_default();
        let peer = self.existing(&peer)?;

        let index = self.directory.join("index");
        let has_index = self.copy_index(&index)?;
        let staged = if has_index { self.staged(&index, repository)? } else { BTreeSet::new() };

        let mut range = String::new();
        tips.iter().chain(&staged).for_each(|id| range.push_str(&format!("{id}\n")));
        peer.iter().for_each(|id| range.push_str(&format!("^{id}\n")));
        let start = file.stream_position()?;
        let words = ["pack-objects", "--revs", "--thin", "--delta-base-offset", "--stdout", "-q"];
        git::run(self.of_copy(&words), &mut range.as_bytes(), file, MAX_SENT_BYTES)?;
        let mut end = file.stream_position()?;
        if end - start <= EMPTY_PACK {
            file.set_len(start)?;
            end = file.seek(io::SeekFrom::Start(start))?;
        }

        let n =
            if has_index { io::copy(&mut File::open(&index)?.take(MAX_INDEX), file)? } else { 0 };
        Ok((end - start, n))
    }

    /// Returns the objects that the copy's repository has.
    fn existing(&self, ids: &BTreeSet<String>) -> io::Result<BTreeSet<String>> {
        let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let check = self.of_copy(&["cat-file", "--batch-check=%(objectname)"]);
        let found = git::output(check, input.as_bytes())?;
        // A missing one has a second word.
        let found = String::from_utf8_lossy(&found);
        Ok(found.lines().filter(|line| commits::is_id(line)).map(str::to_owned).collect())
    }

    /// Copies the index of the copy's repository, as one file. Returns false if there is none.
    fn copy_index(&self, to: &Path) -> io::Result<bool> {
        let from = self.tree.join(".git/index");
        match fs::symlink_metadata(&from) {
            Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_INDEX => {}
            Ok(_) => return Err(io::Error::other("the repository's index is no usable file")),
            Err(_) => return Ok(false),
        }
        let mut copy = File::create(to)?;
        io::copy(&mut File::open(&from)?.take(MAX_INDEX), &mut copy)?;
        let words = ["update-index", "--no-split-index", "--no-untracked-cache"];
        let mut whole = self.of_copy(&words);
        whole.env("GIT_INDEX_FILE", to).env("GIT_WORK_TREE", ".");
        git::output(whole, &[])?;
        Ok(true)
    }

    /// Returns the objects of the index that HEAD does not have.
    fn staged(&self, index: &Path, repository: &Repository) -> io::Result<BTreeSet<String>> {
        let mut list = self.of_copy(&["ls-files", "--stage", "-z"]);
        list.env("GIT_INDEX_FILE", index);
        // Each line has mode, object, stage and path.
        let of_index = objects(&git::output(list, &[])?, 1);
        if repository.tips().is_empty() {
            return Ok(of_index);
        }
        let committed = git::output(self.of_copy(&["ls-tree", "-r", "-z", "HEAD"]), &[]);
        let committed = committed.map(|listed| objects(&listed, 2)).unwrap_or_default();
        Ok(of_index.difference(&committed).cloned().collect())
    }
}

/// Returns the objects in lines of git that end with NUL: the word with this number. Those of submodules are elsewhere.
fn objects(listed: &[u8], at: usize) -> BTreeSet<String> {
    let lines = listed.split(|byte| *byte == 0);
    let id = |line: &[u8]| {
        let facts = line.split(|byte| *byte == b'\t').next().unwrap_or_default();
        let facts = String::from_utf8_lossy(facts).into_owned();
        let is_submodule = facts.starts_with("160000");
        let id = facts.split(' ').nth(at).map(str::to_owned);
        id.filter(|id| !is_submodule && commits::is_id(id))
    };
    lines.filter_map(id).collect()
}

/// Reads a short text file. `None` if it is absent or not usable.
fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file =
        File::open(path).ok().filter(|_| path.symlink_metadata().is_ok_and(|m| m.is_file()))?;
    file.take(MAX_TEXT).read_to_string(&mut text).ok()?;
    Some(text)
}
