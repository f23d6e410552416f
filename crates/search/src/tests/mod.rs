//! Tests on small trees. `choice`: file selection; `lines`: matches; `pages`: pages and limits; `streams`: rows
//! without pages; `find`: names; `hostile`: hostile trees, files and patterns; `large`: large files.

#![expect(clippy::single_range_in_vec_init, reason = "one match is a list of one range")]

mod choice;
mod find;
mod hostile;
mod large;
mod lines;
mod pages;
mod streams;

use super::*;
use quackd_testkit::TestDir;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A temporary directory with files.
pub(crate) struct Files(TestDir);

impl Files {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let files_here = Self(TestDir::empty());
        for (name, content) in files {
            files_here.write(name, content);
        }
        files_here
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        self.0.write(name, content);
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Opens a path without following a link or waiting for a FIFO.
pub(crate) fn open(path: &Path, flags: rustix::fs::OFlags) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

impl Tree for Files {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open_file(&self, relative: &Path) -> io::Result<File> {
        open(&self.0.join(relative), rustix::fs::OFlags::empty())
    }

    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        open(&self.0.join(relative), rustix::fs::OFlags::DIRECTORY)
    }
}

pub(crate) fn stop() -> Stop {
    Stop::at(Instant::now() + Duration::from_secs(120))
}

/// Creates a search for lines without limits.
pub(crate) fn request(pattern: &str) -> Search {
    let mut request = Search::new(Pattern::new(pattern), stop());
    request.scope.ignore = Ignore::None;
    request.scope.hidden = Hidden::Show;
    request.max_bytes = 1_000_000;
    request
}

pub(crate) fn run(tree: &dyn Tree, request: &Search) -> SearchOutcome {
    search(request, tree).unwrap()
}

/// Formats rows as grep does: `path:line:text`, context with `-`, and `--` for a gap if there is context.
pub(crate) fn lines(outcome: &SearchOutcome) -> Vec<String> {
    let mut lines = Vec::new();
    let rows = outcome.files.iter().flat_map(|file| &file.rows);
    let has_context = rows.into_iter().any(|row| row.kind == RowKind::Context);
    for file in &outcome.files {
        for row in &file.rows {
            if row.after_gap && has_context {
                lines.push("--".to_owned());
            }
            let mark = if row.kind == RowKind::Match { ':' } else { '-' };
            let text = String::from_utf8_lossy(&row.text);
            lines.push(format!("{}{mark}{}{mark}{text}", file.path.display(), row.line));
        }
    }
    lines
}

pub(crate) fn found(tree: &dyn Tree, request: &Search) -> Vec<String> {
    lines(&run(tree, request))
}

/// Returns the paths of the files with a row.
pub(crate) fn names(tree: &dyn Tree, request: &Search) -> Vec<String> {
    let outcome = run(tree, request);
    outcome.files.iter().map(|file| file.path.display().to_string()).collect()
}
