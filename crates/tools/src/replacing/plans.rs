//! Plans that were previewed, so that exactly they can be applied. In the memory of the worker: with it they are
//! gone.

use quackd_sandbox::StagedTag;
use quackd_search::replace::Plan;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Plans that are kept; the oldest goes first.
pub(crate) const MAX_PLANS: usize = 16;

/// How long a plan is kept.
pub(crate) const PLAN_LIFE: Duration = Duration::from_secs(15 * 60);

/// The plans of a session. None of its functions may be called from async code.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    id: String,
    since: Instant,
    plan: Arc<Plan>,
}

impl Plans {
    /// Keeps a plan without its diffs, and gives the id by which it is found.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn keep_blocking(&self, mut plan: Plan) -> io::Result<String> {
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
        kept.push_back(Kept { id: id.clone(), since, plan: Arc::new(plan) });
        Ok(id)
    }

    /// The plan with an id, unless it is too old or there were too many since.
    pub(crate) fn get_blocking(&self, id: &str) -> Option<Arc<Plan>> {
        self.get_at(id, Instant::now())
    }

    fn get_at(&self, id: &str, now: Instant) -> Option<Arc<Plan>> {
        let mut kept = self.0.blocking_lock();
        forget_old(&mut kept, now);
        kept.iter().find(|kept| kept.id == id).map(|kept| Arc::clone(&kept.plan))
    }
}

fn forget_old(kept: &mut VecDeque<Kept>, now: Instant) {
    kept.retain(|kept| now.saturating_duration_since(kept.since) < PLAN_LIFE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacing::tests::world::World;

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
