//! A workspace and a session's run directory, for one test.

use crate::Confinement;
use crate::read_tracker::ReadTracker;
use crate::replace::journal::{
    Applied, ApplyError, Backup, ChangeAuthor, Expect, InterruptedReplace, Journal, JournalSession,
    LeftReason, UndoError, Undone, Which, WriteOutcome, apply_blocking, recovery, undo_blocking,
};
use quackd_protocol::policy::{Policy, Profile};
use quackd_sandbox::Root;
use quackd_search::replace::{DiffMode, Replace, ReplacePlan, plan};
use quackd_search::{Hidden, Ignore, Multiline, Stop, Tree};
use quackd_testkit::TestDir;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(in crate::replace::journal) struct World {
    pub(in crate::replace::journal) base: PathBuf,
    pub(in crate::replace::journal) root: Root,
    pub(in crate::replace::journal) confinement: Confinement,
    pub(in crate::replace::journal) seen: ReadTracker,
    pub(in crate::replace::journal) journal: Journal,
    pub(in crate::replace::journal) author: ChangeAuthor,
    _dir: Option<TestDir>,
}

struct Files<'a>(&'a Root);

impl Tree for Files<'_> {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open_file(&self, relative: &Path) -> io::Result<File> {
        self.0.open_relative(relative)
    }

    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        self.0.open_directory(relative)
    }
}

impl World {
    pub(in crate::replace::journal) fn new(files: &[(&str, &str)]) -> Self {
        let dir = TestDir::with(&["ws", "run", "outside"]);
        for (name, content) in files {
            dir.write(Path::new("ws").join(name), content);
        }
        let world = Self::at(&dir);
        Self { _dir: Some(dir), ..world }
    }

    /// Opens the world in an existing directory, as a new worker does.
    pub(in crate::replace::journal) fn at(base: &Path) -> Self {
        let policy = Policy { profile: Profile::WorkspaceWrite, ..Policy::default() };
        Self {
            base: base.to_owned(),
            root: Root::open(&base.join("ws")).unwrap(),
            confinement: Confinement::new(policy, true, String::new()),
            seen: ReadTracker::kept_at(base.join("run/seen.jsonl")),
            journal: Journal::kept_in(base.join("run")),
            author: ChangeAuthor::default(),
            _dir: None,
        }
    }

    /// Opens the same world for the next worker.
    pub(in crate::replace::journal) fn next_worker(self) -> Self {
        let next = Self::at(&self.base);
        Self { _dir: self._dir, ..next }
    }

    pub(in crate::replace::journal) fn ws(&self, name: &str) -> PathBuf {
        self.base.join("ws").join(name)
    }

    pub(in crate::replace::journal) fn write(&self, name: &str, content: &str) {
        fs::write(self.ws(name), content).unwrap();
    }

    pub(in crate::replace::journal) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.ws(name)).unwrap()
    }

    pub(in crate::replace::journal) fn session(&self) -> JournalSession<'_> {
        let Self { root, confinement, seen, journal, author, .. } = self;
        JournalSession { root, confinement, seen, journal, author }
    }

    pub(in crate::replace::journal) fn request(&self, pattern: &str, replacement: &str) -> Replace {
        let stop = Stop::at(Instant::now() + Duration::from_secs(600));
        let mut request = Replace::new(pattern, replacement, stop);
        (request.scope.ignore, request.scope.hidden) = (Ignore::None, Hidden::Show);
        request.pattern.multiline = Multiline::Off;
        request.diff = DiffMode::Unified;
        (request.max_files, request.max_replacements) = (20_000, 1_000_000);
        request
    }

    pub(in crate::replace::journal) fn plan(
        &self,
        pattern: &str,
        replacement: &str,
    ) -> ReplacePlan {
        self.plan_of(&self.request(pattern, replacement))
    }

    pub(in crate::replace::journal) fn plan_of(&self, request: &Replace) -> ReplacePlan {
        plan(request, &Files(&self.root)).unwrap()
    }

    pub(in crate::replace::journal) fn apply(
        &self,
        plan: &ReplacePlan,
    ) -> Result<Applied, ApplyError> {
        apply_blocking(self.session(), plan, &Expect::default(), Backup::Journal, &|| false)
    }

    pub(in crate::replace::journal) fn replace(&self, pattern: &str, replacement: &str) -> Applied {
        self.apply(&self.plan(pattern, replacement)).unwrap()
    }

    pub(in crate::replace::journal) fn undo_last(&self) -> Result<Undone, UndoError> {
        undo_blocking(self.session(), &Which::Last, &|| false)
    }

    pub(in crate::replace::journal) fn undo(
        &self,
        id: &impl ToString,
    ) -> Result<Undone, UndoError> {
        undo_blocking(self.session(), &Which::Id(id.to_string()), &|| false)
    }

    /// Runs the recovery of a starting worker.
    pub(in crate::replace::journal) fn recover(&self) -> Vec<InterruptedReplace> {
        let n = recovery::recover(self.session());
        let found = self.journal.untold_blocking();
        assert_eq!(n, found.len());
        found
    }

    /// Returns every file of the workspace with its content.
    pub(in crate::replace::journal) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.base.join("ws")];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => open.push(entry.path()),
                    kind if kind.is_file() => {
                        drop(found.insert(entry.path(), fs::read(entry.path()).unwrap()));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Returns the temporary files that a write left next to files.
    pub(in crate::replace::journal) fn left_over(&self) -> Vec<PathBuf> {
        let is_ours = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".quackd-"))
        };
        self.contents().into_keys().filter(is_ours).collect()
    }

    pub(in crate::replace::journal) fn inode(&self, name: &str) -> u64 {
        fs::metadata(self.ws(name)).unwrap().ino()
    }
}

/// Describes the result for each file.
pub(in crate::replace::journal) fn outcomes(applied: &Applied) -> Vec<(&str, String)> {
    let of = |outcome: &WriteOutcome| match outcome {
        WriteOutcome::Written { is_detached: false } => "written".to_owned(),
        WriteOutcome::Written { is_detached: true } => "written, detached".to_owned(),
        WriteOutcome::Left(LeftReason::Failed { .. }) => "failed".to_owned(),
        WriteOutcome::Left(left) => left.to_string(),
    };
    applied.files.iter().map(|file| (file.path.to_str().unwrap(), of(&file.outcome))).collect()
}
