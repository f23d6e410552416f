//! Writes an earlier state of a session's files.

use crate::checkpoint::{Cause, Checkpoints};
use crate::error::{IsolateError, OnFile as _};
use crate::journal::{self, Content, Pending};
use crate::node::{self, Node, Stamp};
use crate::notes::Notes;
use crate::plan::protection;
use crate::recorded::{Difference, Recorded};
use crate::report;
use crate::tree::Tree;
use quackd_protocol::isolate::{ApplyOutcome, IsolatedChoice, IsolatedFile, IsolatedReport};
use rustix::fs::{FileType, Mode, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file that differs between the newest state and the goal.
struct Goal {
    difference: Difference,
    /// `None`: it is written.
    left: Option<Left>,
}

/// Reason why a file is not restored.
struct Left {
    outcome: ApplyOutcome,
    reason: String,
}

impl Left {
    fn because(reason: &str) -> Option<Self> {
        Some(Self { outcome: ApplyOutcome::Left, reason: reason.to_owned() })
    }
}

impl Checkpoints {
    /// Records the state, then writes the chosen files of an earlier one, all or none. Files that cannot be written are
    /// left and named.
    ///
    /// # Errors
    /// [`IsolateError::NoState`], [`IsolateError::ChangedNow`], or as [`Self::take`]. The files are then as before.
    pub fn restore(
        mut self,
        number: u64,
        choice: &IsolatedChoice,
        dry_run: bool,
    ) -> Result<IsolatedReport, IsolateError> {
        // The present state is recorded first, so that the restore can be taken back.
        let cause = if dry_run {
            Cause::default()
        } else {
            Cause::restore(format!("before the restore of {number}"))
        };
        self.record(&cause)?;

        let is_chosen = |path: &Path| {
            choice.paths.is_empty() || choice.paths.iter().any(|chosen| path.starts_with(chosen))
        };
        let chosen = self.differences_to(number)?.into_iter();
        let at_ms = self.recorded_at(number)?;
        let chosen = chosen.filter(|difference| is_chosen(&difference.path));
        let mut goals: Vec<Goal> = chosen
            .map(|difference| Goal { left: self.obstacle(&difference, at_ms, choice), difference })
            .collect();
        self.leave_what_is_in_the_way(&mut goals)?;

        let has_any = goals.iter().any(|goal| goal.left.is_none());
        let written = has_any && !dry_run;
        if written {
            self.write(&mut goals)?;
            self.record(&Cause::restore(format!("restore of {number}")))?;
        }

        // Not earlier: it could remove the state that is restored.
        self.prune()?;
        let n = goals.len();
        let files = goals.into_iter().map(|Goal { difference, left }| IsolatedFile {
            path: difference.path.to_string_lossy().into_owned(),
            change: difference.kind(),
            outcome: left.as_ref().map_or(ApplyOutcome::Taken, |left| left.outcome),
            reason: left.map(|left| left.reason),
            diff: None,
        });
        Ok(report::restored(files, n, written, self.notes))
    }

    /// Returns the differences from the newest state to an earlier one, sorted by path.
    fn differences_to(&self, number: u64) -> Result<Vec<Difference>, IsolateError> {
        let Some(newest) = &self.newest else { return Err(IsolateError::NoState(number)) };
        let later = self.states.numbers("changes")?;
        let oldest = later.first().map_or(newest.number, |first| first.saturating_sub(1));
        if number < oldest || newest.number < number {
            return Err(IsolateError::NoState(number));
        }

        let mut goals = BTreeMap::new();
        // From the newest to the oldest: the last entry of a path is its state at the goal.
        for later in later.into_iter().rev().take_while(|later| number < *later) {
            for Difference { path, before, .. } in self.states.read_changes(later)?.differences {
                goals.insert(path, before);
            }
        }

        let difference = |(path, after): (PathBuf, Option<Recorded>)| {
            let before = newest.entries.get(&path).cloned();
            let is_same =
                before.as_ref().map(|one| &one.node) == after.as_ref().map(|one| &one.node);
            (!is_same).then_some(Difference { path, before, after })
        };
        Ok(goals.into_iter().filter_map(difference).collect())
    }

    /// When a state was recorded, in milliseconds since 1970. 0 for the oldest one.
    fn recorded_at(&self, number: u64) -> Result<i64, IsolateError> {
        if self.states.numbers("changes")?.contains(&number) {
            Ok(self.states.read_changes(number)?.checkpoint.at_ms)
        } else {
            Ok(0)
        }
    }

    /// Returns the reason why a file is not restored to its state of that time.
    fn obstacle(&self, goal: &Difference, at_ms: i64, choice: &IsolatedChoice) -> Option<Left> {
        // The next apply would take the newer version out of the workspace.
        if self.refreshed.get(&goal.path).is_some_and(|refreshed_ms| at_ms < *refreshed_ms) {
            return Left::because("came from the workspace after that state");
        }

        let node = |recorded: &Option<Recorded>| recorded.as_ref().map(|it| it.node.clone());
        let (before, after) = (node(&goal.before), node(&goal.after));

        // A copy may have every name. Apply checks them.
        if self.files.copy.is_none()
            && let Some(reason) = protection(&goal.path, after.as_ref(), choice)
        {
            return Some(Left { outcome: ApplyOutcome::Protected, reason });
        }

        if self.files.is_hidden_or_below(&goal.path) {
            return Left::because("is hidden from the session");
        }
        if [&before, &after].into_iter().any(|node| *node == Some(Node::Other)) {
            return Left::because("is special, too large or not recorded in one of the states");
        }

        let is_kept = |it: &Recorded| it.content.is_some() || !matches!(it.node, Node::File { .. });
        if !goal.before.as_ref().is_none_or(is_kept) {
            return Left::because("its present content would be lost: it is too large to be kept");
        }

        match &goal.after {
            Some(after) if self.content(&goal.path, after).is_none() => {
                Left::because("its content was not kept")
            }
            _ => None,
        }
    }

    /// Leaves the files whose place, or that of a directory above, has something that is not recorded.
    fn leave_what_is_in_the_way(&self, goals: &mut [Goal]) -> Result<(), IsolateError> {
        let is_gone = |goal: &&Goal| goal.left.is_none() && goal.difference.after.is_none();
        let gone: BTreeSet<PathBuf> =
            goals.iter().filter(is_gone).map(|goal| goal.difference.path.clone()).collect();
        let has_gone_below = |path: &Path| {
            let mut below = gone.range(path.to_owned()..);
            below.next().is_some_and(|gone| gone.starts_with(path))
        };
        let is_directory =
            |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_new = |goal: &&mut Goal| goal.left.is_none() && goal.difference.after.is_some();

        for goal in goals.iter_mut().filter(is_new) {
            let path = &goal.difference.path;
            let own = self.tree.stat(path).on("read", path)?;
            let is_free = match (&goal.difference.before, &own) {
                (Some(_), _) | (None, None) => true,
                // It may be empty as soon as its files are gone.
                (None, Some(stat)) => is_directory(stat) && has_gone_below(path),
            };
            let mut is_reachable = true;
            for above in path.ancestors().skip(1).filter(|above| above.file_name().is_some()) {
                let stat = self.tree.stat(above).on("read", above)?;
                is_reachable &= stat.as_ref().is_none_or(is_directory) || gone.contains(above);
            }
            if !is_free || !is_reachable {
                goal.left = Left::because("something that is not recorded is in its place");
            }
        }
        Ok(())
    }

    /// Returns where a recorded content is. `None` if nowhere.
    fn content<'a>(&'a self, path: &'a Path, recorded: &Recorded) -> Option<Content<'a>> {
        let Node::File { hash, len, .. } = &recorded.node else {
            return Some(journal::no_content());
        };
        if let Some(span) = recorded.content {
            return Some(Box::new(move || Ok((self.states.content(span)?, None))));
        }

        // The workspace, or the file itself, may have the content.
        let has_content = |at: &&Path| {
            let Ok(tree) = Tree::open(at) else { return false };
            let is_as_long =
                |stat: Stat| u64::try_from(stat.st_size).is_ok_and(|size| size == *len);
            if !tree.stat(path).ok().flatten().is_some_and(is_as_long) {
                return false;
            }
            let found = node::read_at(&tree, path).ok().flatten();
            matches!(found, Some((Node::File { hash: found, .. }, _)) if found == *hash)
        };

        let places = [self.files.tree.as_path(), self.files.workspace.as_path()];
        let at = places.into_iter().find(has_content)?;
        Some(Box::new(move || {
            let tree = Tree::open(at)?;
            let mode = tree.stat(path)?.map(|stat| Mode::from_raw_mode(stat.st_mode));
            Ok((Box::new(tree.file(path)?), mode))
        }))
    }

    /// Writes the goals without an obstacle, in one round, or in two if what goes is in the way of the others.
    fn write(&self, goals: &mut [Goal]) -> Result<(), IsolateError> {
        let written = goals.iter().filter(|goal| goal.left.is_none()).map(|goal| &goal.difference);
        let (gone, others): (Vec<&Difference>, Vec<&Difference>) =
            written.partition(|one| one.after.is_none());
        let crosses = |some: &[&Difference], others: &[&Difference]| {
            let paths: BTreeSet<&Path> = others.iter().map(|one| one.path.as_path()).collect();
            some.iter().any(|one| one.path.ancestors().skip(1).any(|above| paths.contains(above)))
        };

        let rounds = if crosses(&gone, &others) || crosses(&others, &gone) {
            vec![gone, others]
        } else {
            vec![[gone, others].concat()]
        };

        let mut done = self.states.begin_restore();
        for (round, goals) in rounds.iter().enumerate() {
            done = done.and_then(|()| self.write_round(round, goals));
        }
        if let Err(error) = done {
            // If this fails too, the next command takes it back.
            self.states.take_back(&self.tree, &mut Notes::default())?;
            self.states.remove_journals()?;
            return Err(error);
        }
        self.states.finish_restore()
    }

    fn write_round(&self, round: usize, goals: &[&Difference]) -> Result<(), IsolateError> {
        let mut pending = Vec::new();
        for Difference { path, before, after } in goals.iter().copied() {
            let mut stamp = before.as_ref().and_then(|before| before.stamp);
            // Without a recorded stamp, only changes from now on are noticed.
            if before.is_some() && stamp.is_none() {
                stamp = self.tree.stat(path).on("read", path)?.map(|stat| Stamp::of(&stat));
            }

            let content = match after {
                Some(after) => self
                    .content(path, after)
                    .ok_or_else(|| IsolateError::ChangedNow(path.clone()))?,
                None => journal::no_content(),
            };

            let before = before.as_ref().map(|before| before.node.clone());
            let after = after.as_ref().map(|after| after.node.clone());
            pending.push(Pending::new(&self.tree, path, before, stamp, after, content)?);
        }

        journal::begin(&self.states.journal(round), &self.tree, &pending, None)?;
        journal::write(&self.tree, &pending, |_| true)
    }
}
