//! The isolate worker: makes, compares or applies the private copy of one isolated session, or records or restores the
//! state of a session's files, once, and exits.
//!
//! The supervisor touches no file of the user and parses none of a session, so this separate process does. It is confined
//! to the workspace and the directory of the copy before it reads the first of them (`quackd_sandbox::confine`). The work
//! itself is `crates/isolate`.

mod commits;
mod error;
mod git;
mod packed;
mod sent;
mod states;
mod tracked;
mod unpacked;

use error::WorkError;
use quackd_ipc::first::read_first_blocking;
use quackd_ipc::{frames, link};
use quackd_isolate::{CopyOptions, IsolateError, IsolatedCopy, RefreshOptions, copy_workspace};
use quackd_process::{
    Role, abort_on_panic, complain, harden, rank_above_parent, set_process_name, split_off_monitor,
};
use quackd_protocol::isolate::{
    EXPORTED_COMMITS, FromIsolate, IsolateRequest, IsolateTask, SENT_DIRECTORY, TO_ISOLATE_TAGS,
    ToIsolate,
};
use quackd_protocol::worker::EXIT_TERMINAL;
use quackd_sandbox::confine::enter_isolate;
use quackd_sandbox::git::user_excludes_blocking;
use sent::{Sent, SentLimits};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum size of a request, in bytes. It contains paths.
const MAX_REQUEST: usize = 1024 * 1024;

/// Runs as the isolate worker. Called by `quack isolate` and `quack record-states` before any other code in the process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the monitor.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot work on the copy: {error}"));
            ExitCode::from(EXIT_TERMINAL)
        }
    }
}

fn serve() -> io::Result<()> {
    split_off_monitor()?;
    set_process_name("quack-isolate");
    harden(Role::Worker)?;
    // If memory runs out, this process ends before the supervisor.
    rank_above_parent().ok();

    let request = read_first_blocking(rustix::stdio::stdin(), MAX_REQUEST, TO_ISOLATE_TAGS)?;
    let control = link::take_control_channel()?;

    let answer = match request {
        ToIsolate::Isolate(request) => answer(request),
        ToIsolate::Checkpoints(request) => states::answer(request),
    };

    let body = frames::encode(&answer).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;

    let mut channel = UnixStream::from(control);
    // This process has one task, which may wait.
    channel.set_nonblocking(false)?;
    channel.write_all(&length.to_be_bytes())?;
    channel.write_all(&body)
}

/// Confines this process and does the work.
fn answer(request: IsolateRequest) -> FromIsolate {
    let failed = |text: String| FromIsolate::Failed { text };
    let IsolateRequest { workspace, directory, home, task } = request;

    // The rules of the confinement name directories without links.
    let workspace = match workspace.canonicalize() {
        Ok(real) => real,
        Err(error) => return failed(format!("cannot open {}: {error}", workspace.display())),
    };

    let user_excludes = user_excludes_blocking(&home, &workspace);
    let pack = directory.join(EXPORTED_COMMITS);
    let commits = pack.parent().unwrap_or(&directory);
    if matches!(task, IsolateTask::ExportCommits { .. })
        && let Err(error) = states::make_private(commits)
    {
        return failed(format!("cannot create {}: {error}", commits.display()));
    }
    let sent = directory.join(SENT_DIRECTORY);
    if matches!(task, IsolateTask::Pack { .. } | IsolateTask::Unpack { .. })
        && let Err(error) = states::make_private(&sent)
    {
        return failed(format!("cannot create {}: {error}", sent.display()));
    }

    let places = Places { workspace, directory, pack };
    let (readable, writable) = places.of(&task);
    if let Err(error) = enter_isolate(&readable, &writable) {
        return failed(error.to_string());
    }
    work(&places, user_excludes, task).unwrap_or_else(|error| failed(error.to_string()))
}

/// Directories and files of one task.
struct Places {
    workspace: PathBuf,
    /// Private directory of the copy.
    directory: PathBuf,
    /// File with the objects of exported commits.
    pack: PathBuf,
}

impl Places {
    /// Returns the directories that the task reads, and those that it may also write.
    fn of(&self, task: &IsolateTask) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let Self { workspace, directory, pack } = self;
        let commits = pack.parent().unwrap_or(directory).to_owned();
        let both = vec![workspace.clone(), directory.clone()];

        match task {
            IsolateTask::Copy { .. } => {
                (tracked::repository_of(workspace), vec![directory.clone()])
            }
            IsolateTask::Diff { .. } | IsolateTask::Apply { .. } | IsolateTask::Undo {} => {
                (Vec::new(), both)
            }
            // The repository of a linked worktree is elsewhere.
            IsolateTask::Refresh { .. } => (tracked::repository_of(workspace), both),
            // Git reads a repository that the session writes: it must not reach other files of the user.
            IsolateTask::ExportCommits { .. } => {
                let mut readable = tracked::git_directories(workspace);
                readable.extend([workspace.join(".git"), directory.join("tree")]);
                (readable, vec![commits])
            }
            IsolateTask::ImportCommits { .. } => {
                let mut writable = tracked::git_directories(workspace);
                writable.push(commits);
                (vec![workspace.join(".git")], writable)
            }
            // Git reads a repository that the session writes, as for `ExportCommits`.
            IsolateTask::Pack { .. } => {
                let mut readable = tracked::git_directories(workspace);
                readable.push(directory.join("tree"));
                (readable, vec![directory.join(SENT_DIRECTORY)])
            }
            // Only the other machine makes the tree again. The record of the copy here is for none of these programs.
            IsolateTask::Unpack { is_far, .. } => {
                let parts = vec![directory.join("tree"), directory.join(SENT_DIRECTORY)];
                let writable = if *is_far { vec![directory.clone()] } else { parts };
                (tracked::git_directories(workspace), writable)
            }
        }
    }

    fn open(&self, user_excludes: Option<String>) -> Result<IsolatedCopy, IsolateError> {
        IsolatedCopy::open(&self.workspace, &self.directory, user_excludes)
    }

    /// Converts absolute paths of the workspace to relative ones.
    fn relative(&self, paths: Vec<PathBuf>) -> Vec<PathBuf> {
        let relative = |path: PathBuf| {
            let path = path.canonicalize().unwrap_or(path);
            path.strip_prefix(&self.workspace).ok().map(Path::to_owned)
        };
        paths.into_iter().filter_map(relative).collect()
    }
}

/// Does the work in the confined process.
fn work(
    places: &Places,
    user_excludes: Option<String>,
    task: IsolateTask,
) -> Result<FromIsolate, WorkError> {
    let Places { workspace, directory, pack } = places;

    Ok(match task {
        IsolateTask::Copy { hidden, max_files, max_bytes } => {
            let tracked = tracked::files(workspace);
            let options = CopyOptions { hidden, max_files, max_bytes, user_excludes, tracked };
            FromIsolate::Copied(copy_workspace(workspace, directory, &options)?)
        }
        IsolateTask::Diff { choice, text } => {
            FromIsolate::Compared(places.open(user_excludes)?.diff(&choice, text)?)
        }
        IsolateTask::Apply { choice, merge, dry_run, expect } => {
            let copy = places.open(user_excludes)?;
            FromIsolate::Compared(copy.apply(&choice, merge, dry_run, expect.as_deref())?)
        }
        IsolateTask::Undo {} => FromIsolate::Compared(places.open(user_excludes)?.undo()?),
        IsolateTask::Refresh {
            choice,
            merge,
            dry_run,
            hidden,
            keeps_git,
            max_files,
            max_bytes,
        } => {
            let hidden = places.relative(hidden);
            let options =
                RefreshOptions { hidden, merge, dry_run, keeps_git, max_files, max_bytes };
            FromIsolate::Compared(places.open(user_excludes)?.refresh(&choice, options)?)
        }
        IsolateTask::ExportCommits { writes } => {
            let (tree, pack) = (directory.join("tree"), writes.then_some(pack.as_path()));
            FromIsolate::Commits(commits::export(workspace, &tree, pack)?)
        }
        IsolateTask::ImportCommits { reference, commits } => {
            FromIsolate::Commits(commits::import(workspace, pack, reference, commits)?)
        }
        IsolateTask::Pack { is_far, is_new, max_files, max_bytes } => {
            let sent = Sent::new(workspace, directory, SentLimits { is_far, max_files, max_bytes });
            FromIsolate::Packed(sent.pack(is_new, user_excludes.as_deref())?)
        }
        IsolateTask::Unpack { is_far, is_new, max_files, max_bytes } => {
            let sent = Sent::new(workspace, directory, SentLimits { is_far, max_files, max_bytes });
            sent.unpack(is_new, user_excludes.as_deref())?;
            FromIsolate::Unpacked {}
        }
    })
}
