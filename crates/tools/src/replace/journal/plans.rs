//! Previewed plans, so that exactly those can be applied. Kept in the memory of the worker, and lost when it
//! exits.

use quackd_sandbox::StagedTag;
use quackd_search::replace::ReplacePlan;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Maximum number of stored plans. The oldest is dropped first.
pub(crate) const MAX_PLANS: usize = 16;

/// Retention of a plan.
pub(crate) const PLAN_LIFE: Duration = Duration::from_secs(15 * 60);

/// Plans of a session. Do not call its functions from async code.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<VecDeque<StoredPlan>>);

#[derive(Debug)]
struct StoredPlan {
    id: String,
    since: Instant,
    plan: Arc<ReplacePlan>,
}

impl Plans {
    /// Stores a plan without its diffs, and returns its id.
    ///
    /// # Errors
    /// The system returned no random numbers.
    pub(crate) fn keep_blocking(&self, mut plan: ReplacePlan) -> io::Result<String> {
        for file in &mut plan.files {
            file.diff = None;
        }
        plan.skipped = Vec::new();

        let id = format!("p-{}", StagedTag::random()?);
        let mut kept = self.0.blocking_lock();
        let since = Instant::now();
        forget_old(&mut kept, since);

        while MAX_PLANS <= kept.len() {
            kept.pop_front();
        }

        kept.push_back(StoredPlan { id: id.clone(), since, plan: Arc::new(plan) });
        Ok(id)
    }

    /// Returns the plan with an id, unless it expired or was dropped.
    pub(crate) fn get_blocking(&self, id: &str) -> Option<Arc<ReplacePlan>> {
        self.get_at(id, Instant::now())
    }

    fn get_at(&self, id: &str, now: Instant) -> Option<Arc<ReplacePlan>> {
        let mut kept = self.0.blocking_lock();
        forget_old(&mut kept, now);
        kept.iter().find(|kept| kept.id == id).map(|kept| Arc::clone(&kept.plan))
    }
}

fn forget_old(kept: &mut VecDeque<StoredPlan>, now: Instant) {
    kept.retain(|kept| now.saturating_duration_since(kept.since) < PLAN_LIFE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replace::journal::tests::world::World;

    #[test]
    fn plans_are_kept_without_their_diffs_for_a_while_and_up_to_a_number() {
        let world = World::new(&[("a", "a")]);
        let plan = world.plan("a", "b");
        assert!(plan.files[0].diff.is_some());
        let plans = Plans::default();
        let ids: Vec<String> =
            (0..=MAX_PLANS).map(|_| plans.keep_blocking(plan.clone()).unwrap()).collect();
        assert!(plans.get_blocking(&ids[0]).is_none());
        for id in &ids[1..] {
            let kept = plans.get_blocking(id).unwrap();
            assert_eq!((kept.files.len(), &kept.files[0].diff), (1, &None));
        }
        assert!(plans.get_blocking("p-0").is_none());
        assert!(plans.get_at(&ids[3], Instant::now() + PLAN_LIFE).is_none());
        assert!(plans.get_blocking(&ids[3]).is_none());
    }
}
