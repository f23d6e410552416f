//! Cost of the requests of quackd's own agents on one day, over all sessions, for `agent.max_cost_usd_per_day`. Kept in a
//! file, so that a restart does not forget it.
//!
//! The one decision of the daemon that depends on wall-clock time. A clock that is set to another day starts another sum.

use quackd_home::own_file::read_blocking;
use quackd_store::replace_file_blocking;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Longest file, in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// Most dollars that one report of an agent counts.
const MAX_REPORT_USD: f64 = 1_000_000.0;

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Day in UTC, such as `2026-11-27`.
    day: String,
    /// The cost of its requests in US dollars.
    usd: f64,
}

impl Spent {
    /// Reads the file of the last daemon. An unusable one counts as none.
    pub(crate) fn load_blocking(path: &Path) -> Self {
        let read = read_blocking(path, MAX_FILE_BYTES)
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).map_err(io::Error::other));
        match read {
            Ok(spent) if spent.usd.is_finite() && 0.0 <= spent.usd => spent,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            unusable => {
                let error = unusable.err().map(|error| error.to_string()).unwrap_or_default();
                let path = path.display();
                tracing::warn!(%path, error, "ignoring the cost of this day: the file is not usable");
                Self::default()
            }
        }
    }

    /// Begins another sum on another day.
    fn on(&mut self, day: String) -> &mut Self {
        if self.day != day {
            *self = Self { day, usd: 0.0 };
        }
        self
    }
}

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Spending {
    path: PathBuf,
    spent: RefCell<Spent>,
    /// Whether a task writes the file, and whether it must write it again.
    saving: Cell<bool>,
    again: Cell<bool>,
}

impl Spending {
    pub(crate) fn new(path: PathBuf, spent: Spent) -> Rc<Self> {
        let (saving, again) = (Cell::new(false), Cell::new(false));
        Rc::new(Self { path, spent: RefCell::new(spent), saving, again })
    }

    /// Counts the cost of requests.
    pub(crate) fn add(self: &Rc<Self>, usd: f64) {
        if !usd.is_finite() || usd <= 0.0 {
            return;
        }
        self.spent.borrow_mut().on(today()).usd += usd.min(MAX_REPORT_USD);
        self.again.set(true);
        if !self.saving.replace(true) {
            actix::spawn(Rc::clone(self).save_while_needed());
        }
    }

    /// Returns the reason for which no request may be sent today, with this limit in US dollars; 0 for none.
    pub(crate) fn refusal(&self, limit: f64) -> Option<String> {
        let spent = self.spent.borrow_mut().on(today()).usd;
        (0.0 < limit && limit <= spent).then(|| {
            format!(
                "Not sent: the prompts of today have cost ${spent:.4} of ${limit:.4} in all sessions \
                 (agent.max_cost_usd_per_day); the next day begins at 00:00 UTC"
            )
        })
    }

    async fn save_while_needed(self: Rc<Self>) {
        while self.again.replace(false) {
            let (path, spent) = (self.path.clone(), self.spent.borrow().clone());
            let save = move || replace_file_blocking(&path, &serde_json::to_vec(&spent)?);
            if let Ok(Err(error)) = actix_rt::task::spawn_blocking(save).await {
                tracing::warn!(%error, "cannot save the cost of this day");
            }
        }
        self.saving.set(false);
    }
}

fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_day_begins_another_sum_and_a_damaged_file_counts_as_none() {
        let mut spent = Spent { day: "2026-11-26".into(), usd: 3.0 };
        assert_eq!(spent.on("2026-11-26".into()).usd, 3.0);
        assert_eq!(spent.on("2026-11-27".into()).usd, 0.0);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spending.json");
        assert_eq!(Spent::load_blocking(&path), Spent::default());
        for damaged in ["", "{", r#"{"day":"2026-11-27","usd":-1}"#, r#"{"day":7}"#] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(Spent::load_blocking(&path), Spent::default(), "{damaged}");
        }
        std::fs::write(&path, r#"{"day":"2026-11-27","usd":0.25}"#).unwrap();
        assert_eq!(Spent::load_blocking(&path), Spent { day: "2026-11-27".into(), usd: 0.25 });
    }
}
