//! Files of the workspace that changed while a turn ran, for `quack say --result json`: compares what the file system
//! reports of each file before and after the turn. The session lists the files, because it knows which are ignored.

use base64::Engine as _;
use jiff::Timestamp;
use quackd_client::Client;
use quackd_protocol::client::ToolParams;
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::search::{FindRow, SearchPage};
use quackd_protocol::tools::FindArguments;
use serde::Deserialize as _;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// Timeout of one search, most files of a page, and most pages.
const SEARCH_LIMIT: Duration = Duration::from_secs(40);
const PAGE_FILES: usize = 1_000;
const PAGES: usize = 20;

/// Timeout of the list before the turn, which delays the prompt.
const BEFORE_LIMIT: Duration = Duration::from_secs(10);

/// The kernel's time of a change may be this much older than the clock of programs.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// State of a file as the file system reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    /// Device and inode.
    id: (u64, u64),
    size: u64,
    mode: u32,
    /// Times in seconds and nanoseconds: of the content, and of any change.
    modified: (i64, i64),
    changed: (i64, i64),
    /// `None` if the file system does not know it.
    created: Option<SystemTime>,
}

impl FileState {
    fn of(metadata: &Metadata) -> Self {
        Self {
            id: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            mode: metadata.mode(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            created: metadata.created().ok(),
        }
    }

    /// Whether this is the same file under another name, which may have been changed. The number of a deleted file may
    /// have been given to a new one.
    fn is_same_file(&self, other: &Self) -> bool {
        self.id == other.id
            && match (self.created, other.created) {
                (Some(created), Some(other)) => created == other,
                _ => (self.size, self.modified) == (other.size, other.modified),
            }
    }

    /// Whether the file was created, renamed or changed since then.
    fn is_new_since(&self, since: SystemTime) -> bool {
        let since =
            since.checked_sub(CLOCK_STEP).and_then(|time| time.duration_since(UNIX_EPOCH).ok());

        let (seconds, nanoseconds) = self.changed;
        let changed = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok());
        let changed = changed.map(|(seconds, rest)| Duration::new(seconds, rest));
        since <= changed
    }
}

/// The files of a workspace at one time, by their paths as they are shown.
type Files = BTreeMap<String, (PathBuf, Option<FileState>)>;

/// The files before a turn.
#[derive(Debug)]
pub(crate) struct FilesBefore {
    since: SystemTime,
    workspace: PathBuf,
    /// The files, or the reason why they are not known.
    files: Result<Files, String>,
    /// Whether they are on another machine, where this process sees none.
    is_far: bool,
}

/// Reason for which changes on another machine are not known.
const FAR: &str =
    "the session is on another machine: only files that the agent's file tools wrote are known";

/// Changes of files by a turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileChanges {
    /// Written or created ones, also those with a new name.
    pub(super) changed: Vec<String>,
    pub(super) deleted: Vec<String>,
    /// Old and new name.
    pub(super) renamed: Vec<(String, String)>,
    /// Reason for which some are not known.
    pub(super) error: Option<String>,
}

impl FilesBefore {
    /// Lists the files of a session's workspace.
    pub(crate) async fn list(client: Arc<Client>, session: String, workspace: PathBuf) -> Self {
        let since = SystemTime::now();
        if workspace.to_str().and_then(FarWorkspace::of).is_some() {
            return Self { since, workspace, files: Err(FAR.to_owned()), is_far: true };
        }
        let files = match timeout(BEFORE_LIMIT, listed(&client, &session, None)).await {
            Ok(Ok(rows)) => Ok(with_states(rows, workspace.clone()).await),
            Ok(Err(error)) => Err(error),
            Err(_late) => Err(format!("the list took longer than {BEFORE_LIMIT:?}")),
        };
        Self { since, workspace, files, is_far: false }
    }

    /// Lists the files again, and compares.
    pub(super) async fn changes(&self, client: Arc<Client>, session: String) -> FileChanges {
        if self.is_far {
            return FileChanges { error: Some(FAR.to_owned()), ..FileChanges::default() };
        }
        let lists = async {
            let before = self.files.clone()?;
            let rows = listed(&client, &session, None).await?;
            Ok::<_, String>((before, with_states(rows, self.workspace.clone()).await))
        };

        match lists.await {
            Ok((before, after)) => {
                let since = self.since;
                let compared =
                    tokio::task::spawn_blocking(move || compared_blocking(&before, &after, since));
                compared.await.unwrap_or_default()
            }
            // Without two lists, only the times of files show a change.
            Err(reason) => self.only_written(&client, &session, &reason).await,
        }
    }

    /// Searches for files with a new time.
    async fn only_written(&self, client: &Client, session: &str, reason: &str) -> FileChanges {
        match listed(client, session, Some(self.since)).await {
            Ok(rows) => FileChanges {
                changed: rows.into_iter().map(|row| row.path).collect(),
                error: Some(format!("deleted and renamed files are not known: {reason}")),
                ..FileChanges::default()
            },
            Err(error) => FileChanges { error: Some(error), ..FileChanges::default() },
        }
    }
}

/// Returns the files of the workspace, or those with a newer time than `since`. Ignored files are left out: a build
/// writes thousands.
async fn listed(
    client: &Client,
    session: &str,
    since: Option<SystemTime>,
) -> Result<Vec<FindRow>, String> {
    let newer_than = since.map(Timestamp::try_from).transpose();
    let newer_than = newer_than.map_err(|error| error.to_string())?.map(|time| time.to_string());

    let (mut rows, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES {
        let page = FindArguments::builder()
            .hidden(true)
            .exclude_dirs([".git"])
            .limit(PAGE_FILES)
            .modified_after(newer_than.clone())
            .cursor(cursor);
        let params = ToolParams { session_id: Some(session.to_owned()), ..page.into() };

        let reply = client.call_within(params, SEARCH_LIMIT).await;
        let reply = reply.map_err(|error| error.to_string())?;
        let (false, Some(data)) = (reply.info.is_error, reply.data) else { return Err(reply.text) };
        let page = SearchPage::deserialize(&data).map_err(|error| error.to_string())?;
        rows.extend(page.entries.into_iter().flatten());

        match page.cursor {
            _ if page.timed_out || page.too_many_files => break,
            None => return Ok(rows),
            next => cursor = next,
        }
    }

    // A partial list still has new times, but cannot show that a file is gone.
    match since {
        Some(_) => Ok(rows),
        None => Err(format!("the workspace has more than {} files", rows.len())),
    }
}

/// Adds to each file its state on disk. Runs on another thread, because there may be thousands.
async fn with_states(rows: Vec<FindRow>, workspace: PathBuf) -> Files {
    let read = move || rows.into_iter().map(|row| with_state_blocking(row, &workspace)).collect();
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

fn with_state_blocking(row: FindRow, workspace: &Path) -> (String, (PathBuf, Option<FileState>)) {
    let engine = base64::engine::general_purpose::STANDARD;
    let bytes = row.path_bytes.and_then(|bytes| engine.decode(bytes).ok());
    let path = workspace.join(bytes.map_or_else(|| row.path.clone().into(), OsString::from_vec));
    let state = path.symlink_metadata().ok().as_ref().map(FileState::of);
    (row.path, (path, state))
}

/// Compares the files before and after a turn.
fn compared_blocking(before: &Files, after: &Files, since: SystemTime) -> FileChanges {
    let mut gone: HashMap<(u64, u64), (&String, &FileState)> = HashMap::new();
    // Files that exist, and whether they were changed for sure.
    let mut present: Vec<(&String, FileState, bool)> = Vec::new();

    for (name, (path, state)) in before {
        let Some(old) = state else { continue };
        let now = match after.get(name) {
            Some((_, Some(now))) => Ok(Some(now.clone())),
            _ => now_blocking(path),
        };
        match now {
            Ok(Some(now)) if now != *old => present.push((name, now, true)),
            // A file that cannot be read is not known to be gone.
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => drop(gone.insert(old.id, (name, old))),
        }
    }

    for (name, (_, state)) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
        // A file that was ignored before is not new.
        present.extend(state.as_ref().map(|now| (name, now.clone(), now.is_new_since(since))));
    }

    let mut changes = FileChanges::default();
    for (name, now, is_changed) in present {
        let is_renamed = gone.get(&now.id).is_some_and(|(_, old)| old.is_same_file(&now));
        if is_renamed && let Some((old, _)) = gone.remove(&now.id) {
            changes.renamed.push((old.clone(), name.clone()));
        }

        // Files of a directory with another name are as old as before.
        if is_renamed || is_changed {
            changes.changed.push(name.clone());
        }
    }

    // The remaining files have no counterpart among the present ones.
    changes.deleted = gone.into_values().map(|(name, _)| name.clone()).collect();
    changes
}

/// Returns the state of a file that the second list does not have: it is gone, or ignored now.
fn now_blocking(path: &Path) -> io::Result<Option<FileState>> {
    match path.symlink_metadata() {
        Ok(metadata) => Ok(Some(FileState::of(&metadata))),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
