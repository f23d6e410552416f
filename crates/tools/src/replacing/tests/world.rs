//! A workspace and a session's run directory, for one test.

use crate::Confinement;
use crate::replacing::{
    Applied, ApplyError, Backup, Expect, Interrupted, Journal, Left, Outcome, Session, UndoError,
    Undone, Which, apply_blocking, recovery, undo_blocking,
};
use crate::seen::SeenFiles;
use quackd_protocol::policy::{Policy, Profile};
use quackd_sandbox::Root;
use quackd_search::replace::{DiffMode, Plan, Replace, plan};
use quackd_search::{Hidden, Ignore, Multiline, Stop, Tree};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(in crate::replacing) struct World {
    pub(in crate::replacing) base: PathBuf,
    pub(in crate::replacing) root: Root,
    pub(in crate::replacing) confinement: Confinement,
    pub(in crate::replacing) seen: SeenFiles,
    pub(in crate::replacing) journal: Journal,
    _dir: Option<TempDir>,
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
    pub(in crate::replacing) fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["ws", "run", "outside"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        for (name, content) in files {
            let path = dir.path().join("ws").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let base = fs::canonicalize(dir.path()).unwrap();
        Self { _dir: Some(dir), ..Self::at(&base) }
    }

    /// The world in a directory that is there, as a new worker sees it.
    pub(in crate::replacing) fn at(base: &Path) -> Self {
        let policy = Policy { profile: Profile::WorkspaceWrite, ..Policy::default() };
        Self {
            base: base.to_owned(),
            root: Root::open(&base.join("ws")).unwrap(),
            confinement: Confinement { policy, is_confined: true },
            seen: SeenFiles::kept_at(base.join("run/seen.jsonl")),
            journal: Journal::kept_in(base.join("run")),
            _dir: None,
        }
    }

    /// The same world for the worker that comes after this one.
    pub(in crate::replacing) fn next_worker(self) -> Self {
        let next = Self::at(&self.base);
        Self { _dir: self._dir, ..next }
    }

    pub(in crate::replacing) fn ws(&self, name: &str) -> PathBuf {
        self.base.join("ws").join(name)
    }

    pub(in crate::replacing) fn write(&self, name: &str, content: &str) {
        fs::write(self.ws(name), content).unwrap();
    }

    pub(in crate::replacing) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.ws(name)).unwrap()
    }

    pub(in crate::replacing) fn session(&self) -> Session<'_> {
        let Self { root, confinement, seen, journal, .. } = self;
        Session { root, confinement, seen, journal }
    }

    pub(in crate::replacing) fn request(&self, pattern: &str, replacement: &str) -> Replace {
        let stop = Stop::at(Instant::now() + Duration::from_secs(600));
        let mut request = Replace::new(pattern, replacement, stop);
        (request.scope.ignore, request.scope.hidden) = (Ignore::None, Hidden::Show);
        request.pattern.multiline = Multiline::Off;
        request.diff = DiffMode::Unified;
        (request.max_files, request.max_replacements) = (20_000, 1_000_000);
        request
    }

    pub(in crate::replacing) fn plan(&self, pattern: &str, replacement: &str) -> Plan {
        self.plan_of(&self.request(pattern, replacement))
    }

    pub(in crate::replacing) fn plan_of(&self, request: &Replace) -> Plan {
        plan(request, &Files(&self.root)).unwrap()
    }

    pub(in crate::replacing) fn apply(&self, plan: &Plan) -> Result<Applied, ApplyError> {
        apply_blocking(self.session(), plan, &Expect::default(), Backup::Journal, &|| false)
    }

    pub(in crate::replacing) fn replace(&self, pattern: &str, replacement: &str) -> Applied {
        self.apply(&self.plan(pattern, replacement)).unwrap()
    }

    pub(in crate::replacing) fn undo_last(&self) -> Result<Undone, UndoError> {
        undo_blocking(self.session(), &Which::Last, &|| false)
    }

    pub(in crate::replacing) fn undo(&self, id: &impl ToString) -> Result<Undone, UndoError> {
        undo_blocking(self.session(), &Which::Id(id.to_string()), &|| false)
    }

    /// What a worker finds out at its start.
    pub(in crate::replacing) fn recover(&self) -> Vec<Interrupted> {
        let n = recovery::recover(self.session());
        let found = self.journal.untold_blocking();
        assert_eq!(n, found.len());
        found
    }

    /// Every file of the workspace with its content.
    pub(in crate::replacing) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
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

    /// Names of what a write left beside a file.
    pub(in crate::replacing) fn left_over(&self) -> Vec<PathBuf> {
        let is_ours = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".quackd-"))
        };
        self.contents().into_keys().filter(is_ours).collect()
    }

    pub(in crate::replacing) fn inode(&self, name: &str) -> u64 {
        fs::metadata(self.ws(name)).unwrap().ino()
    }
}

/// What became of each file, in words.
pub(in crate::replacing) fn outcomes(applied: &Applied) -> Vec<(&str, String)> {
    let of = |outcome: &Outcome| match outcome {
        Outcome::Written { is_detached: false } => "written".to_owned(),
        Outcome::Written { is_detached: true } => "written, detached".to_owned(),
        Outcome::Left(Left::Failed { .. }) => "failed".to_owned(),
        Outcome::Left(left) => left.to_string(),
    };
    applied.files.iter().map(|file| (file.path.to_str().unwrap(), of(&file.outcome))).collect()
}
