//! Deletes what nobody needs any more, in steps: by itself what is safe, and for `quack.gc` what it asks for.

use super::{Keeping, mebibytes};
use crate::clock::now_text;
use crate::errors::{CleanError, chain};
use crate::registry::{Registry, TakeSnapshot};
use actix::Addr;
use quackd_home::keep::{
    Found, Rules, Tally, find_blocking, remove_blocking, trim_service_log_blocking,
};
use quackd_protocol::client::{GcData, GcItem, GcKind, GcParams};
use quackd_protocol::limits::{GC_KEPT_ASIDE, MAX_GC_NAMED};
use quackd_store::Origin;
use std::rc::Rc;
use std::time::Duration;

/// Pause after the start, which has other things to do, and between two cleanings. What is bounded by age or by
/// all of its bytes together is beyond its bound for so long at most, unless the clock is set in the middle of one.
const AT_START: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Things that are deleted in one go; others of the blocking pool have their turn in between.
const STEP: usize = 64;

/// Whether a clock is believed that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ages {
    /// Things are as old as they look.
    AsTheyLook,
    /// What may only look so old stays.
    Certain,
}

/// See [`super::start`].
pub(super) async fn repeat(retention: Rc<Keeping>, registry: Addr<Registry>) {
    tokio::time::sleep(AT_START).await;
    loop {
        retention.clean_by_itself(&registry).await;
        tokio::time::sleep(EVERY).await;
    }
}

impl Keeping {
    /// Deletes what is safe, and says in the log what that was.
    pub(super) async fn clean_by_itself(&self, registry: &Addr<Registry>) {
        let rules = Rules { quarantined: None, ..self.rules(None) };
        let home = self.sessions.daemon.home.clone();
        if let Ok(Err(error)) = blocking(move || trim_service_log_blocking(&home)).await {
            tracing::warn!(%error, "cannot empty the service manager's log");
        }
        match self.clean(registry, rules, Ages::Certain, false).await {
            Ok((tally, _)) if tally.items() != 0 || tally.failed != 0 => {
                let (items, bytes, failed) = (tally.items(), tally.bytes(), tally.failed);
                tracing::info!(items, bytes, failed, why = tally.why, "deleted what nobody needs");
            }
            Ok(_) | Err(CleanError::Ended) => {}
            Err(error) => tracing::warn!(error = %chain(&error), "cannot keep house"),
        }
    }

    /// `quack.gc`.
    pub(crate) async fn gc(
        &self,
        params: GcParams,
        registry: &Addr<Registry>,
    ) -> Result<GcData, CleanError> {
        let older = params.older_than_s.map(Duration::from_secs);
        let dry_run = params.dry_run.unwrap_or(false);
        let histories = params.histories.unwrap_or(false).then(|| older.unwrap_or(GC_KEPT_ASIDE));
        if histories.is_some() {
            self.certain()?;
        }
        let rules = Rules { histories, ..self.rules(older) };
        let cleaning = self.clean(registry, rules, Ages::AsTheyLook, dry_run);
        let (tally, found) = cleaning.await?;
        Ok(answer(dry_run, tally, &found))
    }

    /// Fails unless every existing session is known.
    fn certain(&self) -> Result<(), CleanError> {
        let why = match &self.health.metadata {
            Ok(Origin::File) => return Ok(()),
            Ok(Origin::Fresh) => "there was none when the daemon started".to_owned(),
            Ok(Origin::Backup { reason, .. } | Origin::Lost { reason, .. }) => reason.to_string(),
            Err(why) => why.clone(),
        };
        Err(CleanError::NotCertain(why))
    }

    /// What goes when it is so old; as it is configured if nobody says.
    fn rules(&self, older: Option<Duration>) -> Rules {
        let keep = &self.keep;
        Rules {
            is_served: true,
            outputs: older.unwrap_or(keep.outputs.value),
            undo: older.unwrap_or(keep.undo.value),
            undo_max_bytes: mebibytes(keep.undo_mb.value),
            quarantined: Some(older.unwrap_or(GC_KEPT_ASIDE)),
            histories: None,
        }
    }

    async fn clean(
        &self,
        registry: &Addr<Registry>,
        rules: Rules,
        ages: Ages,
        dry_run: bool,
    ) -> Result<(Tally, Found), CleanError> {
        // Two at the same time would count the same things.
        let _turn = self.cleaning.acquire().await.map_err(|_closed| CleanError::Ended)?;
        // What exists is asked before it is looked what there is: what is made in between is young.
        let snapshot = registry.send(TakeSnapshot).await.map_err(|_full| CleanError::Ended)?;
        let known = snapshot.live_set().await;
        // Only now: the clock may have been set while this waited.
        let even_since = self.pulse.even_since();
        let even = even_since.unwrap_or(self.sessions.daemon.started).elapsed();
        let rules = if ages == Ages::Certain { certain_ages(rules, even) } else { rules };
        let home = self.sessions.daemon.home.clone();
        let found = blocking(move || find_blocking(&home, &rules, Some(&known))).await??;
        if ages == Ages::Certain && self.pulse.even_since() != even_since {
            // By which clock it was found is not known; what may go is found again the next time.
            return Ok((Tally::default(), Found::default()));
        }
        if dry_run {
            return Ok((Tally::of(&found.items), found));
        }
        let mut tally = Tally::default();
        for step in found.items.chunks(STEP) {
            let (home, step) = (self.sessions.daemon.home.clone(), step.to_vec());
            tally.add(blocking(move || remove_blocking(&home, &step)).await?);
        }
        let outputs = tally.kinds.get(&quackd_home::keep::Kind::Outputs).map_or(0, |(n, _)| *n);
        self.sessions.metrics.spills_deleted.add(u64::try_from(outputs).unwrap_or(u64::MAX));
        if tally.items() != 0 {
            let deleted = format!("{} things were deleted at {}", tally.items(), now_text());
            self.last.replace(Some(deleted));
        }
        Ok((tally, found))
    }
}

/// Lets nothing go for its age that may only look so old. All that goes by its age was made since the daemon
/// started; and for `even` that clock by which files have their times has not been set forward by much. What is
/// said to be older than that is not, or its time was written into it. The bounds in bytes hold all the same.
fn certain_ages(rules: Rules, even: Duration) -> Rules {
    let certain = |age: Duration| if age <= even { age } else { Duration::MAX };
    Rules { outputs: certain(rules.outputs), undo: certain(rules.undo), ..rules }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CleanError> {
    actix_rt::task::spawn_blocking(work).await.map_err(|_ended| CleanError::Ended)
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
            quarantined: None,
            histories: None,
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
