//! Work that the last shutdown of a daemon interrupted, by session. Recorded at the shutdown, and reported until the
//! session is used again. One instance per daemon, on the actors' thread.
//!
//! A killed daemon records nothing: its callers see their connection end.

use crate::clock::now_text;
use quackd_home::own_file::read_blocking;
use quackd_protocol::SessionId;
use quackd_protocol::client::{InterruptedSession, Interruption, UnfinishedWork, WorkKind};
use quackd_store::replace_file_blocking;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Version of the file's format. A file of another version is ignored.
const VERSION: u64 = 1;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Maximum number of sessions, and of pieces of work of one session.
const MAX_SESSIONS: usize = 1000;
const MAX_WORK: usize = 41;

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Noted {
    version: u64,
    sessions: Vec<InterruptedSession>,
}

/// Interrupted work, and the file that stores it.
#[derive(Debug)]
pub(crate) struct Interrupted {
    path: PathBuf,
    sessions: RefCell<BTreeMap<SessionId, InterruptedSession>>,
    /// Whether a save is running. Only one runs at a time, so that an older record cannot replace a
    /// newer one.
    saving: Cell<bool>,
    /// Whether the record changed after the running save copied it.
    again: Cell<bool>,
}

/// Reads the record of the last daemon. Empty for an unusable file.
pub(crate) fn load_blocking(path: &Path) -> Vec<InterruptedSession> {
    match read(path) {
        Ok(noted) if noted.version == VERSION => noted.sessions,
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "ignoring what the last stop cut short");
            Vec::new()
        }
        // The usual case: there is no file, because nothing was interrupted.
        _ => Vec::new(),
    }
}

fn read(path: &Path) -> io::Result<Noted> {
    Ok(serde_json::from_slice(&read_blocking(path, MAX_BYTES)?)?)
}

impl Interrupted {
    /// Creates the record from the content of `path`.
    pub(crate) fn new(path: PathBuf, loaded: Vec<InterruptedSession>) -> Rc<Self> {
        let sessions = loaded.into_iter().take(MAX_SESSIONS);
        let sessions = sessions.map(|session| (session.session_id.clone(), session)).collect();
        let (saving, again) = (Cell::new(false), Cell::new(false));
        Rc::new(Self { path, sessions: RefCell::new(sessions), saving, again })
    }

    /// Returns the interrupted work of a session that was not used since.
    pub(crate) fn of(&self, session: &SessionId) -> Option<Interruption> {
        self.sessions.borrow().get(session).map(|noted| noted.interruption.clone())
    }

    /// Returns all interrupted sessions.
    pub(crate) fn all(&self) -> Vec<InterruptedSession> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Removes a session from the record: it is used again, or was deleted.
    pub(crate) fn resumed(self: &Rc<Self>, session: &SessionId) {
        if self.sessions.borrow_mut().remove(session).is_some() {
            self.again.set(true);
            if !self.saving.replace(true) {
                actix::spawn(Rc::clone(self).save_while_needed());
            }
        }
    }

    /// Adds interrupted work. [`Interrupted::save`] writes it.
    pub(crate) fn note(&self, by: &str, work: &[UnfinishedWork]) {
        let mut sessions = self.sessions.borrow_mut();
        let at = now_text();

        // The newest interruption of a session replaces older ones.
        for piece in work {
            sessions.remove(&piece.session_id);
        }

        for piece in work {
            if MAX_SESSIONS <= sessions.len() && !sessions.contains_key(&piece.session_id) {
                continue;
            }
            let id = piece.session_id.clone();
            let noted = sessions.entry(id.clone()).or_insert_with(|| InterruptedSession {
                session_id: id,
                session_name: piece.session_name.clone(),
                label: piece.label.clone(),
                interruption: Interruption { at: at.clone(), by: by.to_owned(), work: Vec::new() },
            });

            let work = &mut noted.interruption.work;
            if work.len() < MAX_WORK {
                work.push(description(piece));
            }
        }
    }

    /// Writes the record, or removes the file if the record is empty.
    pub(crate) async fn save(&self) {
        let (path, sessions) = (self.path.clone(), self.all());
        let saved = actix_rt::task::spawn_blocking(move || save_blocking(&path, sessions)).await;
        if let Ok(Err(error)) = saved {
            tracing::warn!(%error, "cannot note what was cut short");
        }
    }

    async fn save_while_needed(self: Rc<Self>) {
        // The flag is cleared before the save copies the record, so a change during the save causes
        // another one.
        while self.again.replace(false) {
            self.save().await;
        }
        self.saving.set(false);
    }
}

fn save_blocking(path: &Path, sessions: Vec<InterruptedSession>) -> io::Result<()> {
    if sessions.is_empty() {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(&Noted { version: VERSION, sessions })?;
    replace_file_blocking(path, &text)
}

fn description(piece: &UnfinishedWork) -> String {
    match piece.kind {
        WorkKind::Call => piece.what.clone(),
        WorkKind::Job => format!("background job {}", piece.what),
        WorkKind::Turn => format!("a turn of {}", piece.what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(session: &str, kind: WorkKind, what: &str) -> UnfinishedWork {
        UnfinishedWork {
            session_id: SessionId(session.into()),
            session_name: format!("name of {session}"),
            label: String::new(),
            kind,
            what: what.into(),
            elapsed_ms: None,
        }
    }

    #[actix::test]
    async fn what_was_cut_short_is_told_by_the_next_daemon_until_the_session_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("interrupted.json");
        let first = Interrupted::new(path.clone(), load_blocking(&path));
        first.note(
            "restart",
            &[
                work("a", WorkKind::Call, "bash"),
                work("a", WorkKind::Job, "job-1 make"),
                work("b", WorkKind::Turn, "Pi"),
            ],
        );
        first.save().await;

        let second = Interrupted::new(path.clone(), load_blocking(&path));
        let found = second.of(&SessionId("a".into())).unwrap();
        assert_eq!(
            (found.by.as_str(), found.work),
            ("restart", vec!["bash".to_owned(), "background job job-1 make".to_owned()])
        );
        assert_eq!(second.all().len(), 2);
        for session in ["a", "b", "c"] {
            second.resumed(&SessionId(session.into()));
        }
        assert_eq!(second.all(), []);
        while second.saving.get() {
            tokio::task::yield_now().await;
        }
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_cannot_be_used_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("interrupted.json");
        for bad in ["", "{", "[]", r#"{"version":2,"sessions":[]}"#] {
            std::fs::write(&path, bad).unwrap();
            assert_eq!(load_blocking(&path), []);
        }
    }
}
