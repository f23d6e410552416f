//! Garbage collection: deletes expired and orphaned files in batches, periodically and for `quack.gc`.

use super::unended_calls::unended_calls_blocking;
use super::{Retention, journal_limits, mebibytes};
use crate::clock::now_text;
use crate::errors::{GcError, chain};
use crate::registry::{Registry, TakeSnapshot};
use actix::Addr;
use quackd_home::call_journal::prune_blocking;
use quackd_home::keep::{
    Found, Rules, Tally, find_blocking, remove_blocking, trim_service_log_blocking,
};
use quackd_protocol::client::{GcData, GcItem, GcKind, GcParams};
use quackd_protocol::guest_agents::STATE_KEPT;
use quackd_protocol::limits::{GC_KEPT_ASIDE, MAX_GC_NAMED};
use quackd_store::Origin;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// Delay of the first run after startup, and interval of the runs. Files exceed their limits by at most this interval,
/// unless the clock is set during a run.
const FIRST_RUN_DELAY: Duration = Duration::from_secs(5);
const GC_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Interval between two checks of the free disk space.
const DISK_INTERVAL: Duration = Duration::from_secs(10);

/// Number of deletions per batch. Other tasks of the blocking pool run in between.
const BATCH_SIZE: usize = 64;

/// How to treat file ages after a step of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgeTrust {
    /// Trust the file times.
    AsTheyLook,
    /// Keep files that may only look old.
    Certain,
}

/// Checks the free space periodically, and collects garbage once when it becomes low.
async fn watch_disk(retention: Rc<Retention>, registry: Addr<Registry>) {
    let disk = &retention.sessions.pool.disk;
    loop {
        disk.check().await;
        // Another caller's check may have found it.
        if disk.take_cleanup_due() {
            retention.collect_periodically(&registry).await;
        }
        tokio::time::sleep(DISK_INTERVAL).await;
    }
}

/// Collects garbage periodically. Runs until the daemon stops.
async fn repeat(retention: Rc<Retention>, registry: Addr<Registry>) {
    retention.end_unended_calls().await;
    tokio::time::sleep(FIRST_RUN_DELAY).await;
    loop {
        retention.collect_periodically(&registry).await;
        tokio::time::sleep(GC_INTERVAL).await;
    }
}

impl Retention {
    /// Starts the periodic tasks. They run until the daemon ends.
    pub(crate) fn start(self: &Rc<Self>, registry: &Addr<Registry>) {
        actix::spawn(watch_disk(Rc::clone(self), registry.clone()));
        actix::spawn(repeat(Rc::clone(self), registry.clone()));
    }

    /// Collects garbage that is safe to delete, and logs the result.
    pub(super) async fn collect_periodically(&self, registry: &Addr<Registry>) {
        // Quarantined files may be the only copy of the user's data, and agents have logins, so only `quack.gc`
        // deletes them.
        let rules = Rules { quarantined: None, agents: None, ..self.rules(None) };
        let home = self.sessions.daemon.home.clone();

        if let Ok(Err(error)) = blocking(move || trim_service_log_blocking(&home)).await {
            tracing::warn!(%error, "cannot empty the service manager's log");
        }

        self.prune_journal().await;

        match self.clean(registry, rules, AgeTrust::Certain, false).await {
            Ok((tally, _)) if tally.items() != 0 || tally.failed != 0 => {
                let (items, bytes, failed) = (tally.items(), tally.bytes(), tally.failed);
                tracing::info!(items, bytes, failed, why = tally.why, "garbage collected");
            }
            // Nothing to delete, or the daemon is shutting down.
            Ok(_) | Err(GcError::Ended) => {}
            Err(error) => tracing::warn!(error = %chain(&error), "garbage collection failed"),
        }
    }

    /// Records the ends of calls and background jobs that ran when an earlier daemon was killed.
    /// Called once after the start.
    async fn end_unended_calls(&self) {
        let started = self.sessions.daemon.started.elapsed();
        // A call of this daemon that began after its start may still run.
        let before = SystemTime::now().checked_sub(started).unwrap_or(SystemTime::UNIX_EPOCH);
        let dir = self.sessions.daemon.home.journal_dir();

        match blocking(move || unended_calls_blocking(&dir, before)).await {
            Ok(Ok(unended)) => self.sessions.call_journal.record_ends(unended),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read the journal for calls without an end");
            }
            // The daemon is shutting down.
            Err(_ended) => {}
        }
    }

    /// Deletes old calls from the journal.
    async fn prune_journal(&self) {
        let daemon = &self.sessions.daemon;
        let (dir, limits) = (daemon.home.journal_dir(), journal_limits(&daemon.config.keep));
        let pruned = blocking(move || prune_blocking(&dir, limits, SystemTime::now())).await;
        if let Ok(Err(error)) = pruned {
            tracing::warn!(%error, "cannot delete old files of the journal");
        }
    }

    /// Runs a collection for `quack.gc`, or only lists the files for a dry run.
    pub(crate) async fn gc(
        &self,
        params: GcParams,
        registry: &Addr<Registry>,
    ) -> Result<GcData, GcError> {
        let older = params.older_than_s.map(Duration::from_secs);
        let dry_run = params.dry_run.unwrap_or(false);

        let histories = params.histories.unwrap_or(false).then(|| older.unwrap_or(GC_KEPT_ASIDE));
        // The history of an unknown session would look orphaned.
        if histories.is_some() {
            self.certain()?;
        }

        let rules = Rules { histories, ..self.rules(older) };
        let cleaning = self.clean(registry, rules, AgeTrust::AsTheyLook, dry_run);
        let (tally, found) = cleaning.await?;
        Ok(answer(dry_run, tally, &found))
    }

    /// Returns an error unless every existing session is known.
    fn certain(&self) -> Result<(), GcError> {
        let why = match &self.health.metadata {
            Ok(Origin::File) => return Ok(()),
            Ok(Origin::Fresh) => "there was none when the daemon started".to_owned(),
            Ok(Origin::Backup { reason, .. } | Origin::Lost { reason, .. }) => reason.to_string(),
            Err(why) => why.clone(),
        };
        Err(GcError::NotCertain(why))
    }

    /// Returns the rules with the age `older`, or else with the configured ages.
    fn rules(&self, older: Option<Duration>) -> Rules {
        let keep = &self.sessions.daemon.config.keep;
        Rules {
            is_served: true,
            outputs: older.unwrap_or(keep.outputs.value),
            undo: older.unwrap_or(keep.undo.value),
            undo_max_bytes: mebibytes(keep.undo_mb.value),
            caches_max_bytes: mebibytes(keep.caches_mb.value),
            quarantined: Some(older.unwrap_or(GC_KEPT_ASIDE)),
            histories: None,
            agents: Some(STATE_KEPT),
        }
    }

    async fn clean(
        &self,
        registry: &Addr<Registry>,
        rules: Rules,
        ages: AgeTrust,
        dry_run: bool,
    ) -> Result<(Tally, Found), GcError> {
        // Two concurrent runs would count the same files.
        let _turn = self.cleaning.acquire().await.map_err(|_closed| GcError::Ended)?;

        // Collect the live set before the files are listed: a file that is created in between is young and therefore
        // kept.
        let snapshot = registry.send(TakeSnapshot).await.map_err(|_full| GcError::Ended)?;
        let known = snapshot.live_set(&self.sessions);

        // After the waiting above, because the clock may have been set during that time.
        let even_since = self.loop_monitor.ages_reliable_since();
        let even = even_since.unwrap_or(self.sessions.daemon.started).elapsed();
        let rules = if ages == AgeTrust::Certain { certain_ages(rules, even) } else { rules };

        let home = self.sessions.daemon.home.clone();
        let found = blocking(move || find_blocking(&home, &rules, Some(&known))).await??;
        if ages == AgeTrust::Certain && self.loop_monitor.ages_reliable_since() != even_since {
            // The clock was set during the search, so the ages are unknown. The next run finds the files again.
            return Ok((Tally::default(), Found::default()));
        }

        if dry_run {
            return Ok((Tally::of(&found.items), found));
        }

        let mut tally = Tally::default();
        // In batches, so that other work of the blocking pool runs in between.
        for step in found.items.chunks(BATCH_SIZE) {
            let (home, step) = (self.sessions.daemon.home.clone(), step.to_vec());
            tally.add(blocking(move || remove_blocking(&home, &step)).await?);
        }

        let outputs = tally.kinds.get(&quackd_home::keep::Kind::Outputs).map_or(0, |(n, _)| *n);
        self.sessions.metrics.spills_deleted.add(u64::try_from(outputs).unwrap_or(u64::MAX));

        if tally.items() != 0 {
            let deleted = format!("{} items were deleted at {}", tally.items(), now_text());
            self.last.replace(Some(deleted));
        }
        Ok((tally, found))
    }
}

/// Keeps files that may only look expired. Files with a limit on their age were created since the daemon started, and
/// the clock had no large forward step for the duration `even`. A file that looks older than `even` may be younger, or
/// its time was set explicitly. Limits on the total size still apply.
fn certain_ages(rules: Rules, even: Duration) -> Rules {
    let certain = |age: Duration| if age <= even { age } else { Duration::MAX };
    Rules { outputs: certain(rules.outputs), undo: certain(rules.undo), ..rules }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, GcError> {
    actix_rt::task::spawn_blocking(work).await.map_err(|_ended| GcError::Ended)
}

fn answer(dry_run: bool, tally: Tally, found: &Found) -> GcData {
    let named = |item: &quackd_home::keep::Item| GcItem {
        kind: item.kind.name().to_owned(),
        path: item.path.clone(),
        bytes: item.bytes,
        age_s: item.age.as_secs(),
    };

    GcData {
        dry_run,
        items: tally.items(),
        bytes: tally.bytes(),
        failed: tally.failed,
        why: tally.why,
        more: found.is_cut,
        kinds: tally
            .kinds
            .into_iter()
            .map(|(kind, (items, bytes))| GcKind { kind: kind.name().to_owned(), items, bytes })
            .collect(),
        found: found.items.iter().filter(|_| dry_run).take(MAX_GC_NAMED).map(named).collect(),
        ..GcData::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_for_an_age_that_only_the_clock_says() {
        let day = Duration::from_secs(24 * 60 * 60);
        let rules = || Rules {
            is_served: true,
            outputs: 7 * day,
            undo: 2 * day,
            undo_max_bytes: 1,
            caches_max_bytes: 1,
            quarantined: None,
            histories: None,
            agents: None,
        };
        let ages = |even| {
            let rules = certain_ages(rules(), even);
            (rules.outputs, rules.undo, rules.undo_max_bytes)
        };
        assert_eq!(ages(day), (Duration::MAX, Duration::MAX, 1));
        assert_eq!(ages(3 * day), (Duration::MAX, 2 * day, 1));
        assert_eq!(ages(7 * day), (7 * day, 2 * day, 1));
    }
}
