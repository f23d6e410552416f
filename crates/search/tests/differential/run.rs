//! Run of one test: counts cases, collects differences, and reports the totals at the end.

use crate::known_differences::Known;
use crate::random::{Random, say, seed};
use crate::shrink::{Smaller, shrink};
use crate::tree::Files;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Maximum number of differences that are shrunk and printed before a run stops.
const MAX_DIFFERENCES: usize = 5;

/// Result of one comparison.
#[derive(Debug)]
pub(crate) enum Verdict {
    Same,
    /// An intended difference.
    Known(Known),
    /// The commands and both answers.
    Differs(Kind, String),
}

/// Kind of a difference. Shrinking preserves it, so that a differing answer does not turn into a pattern that
/// only one of the two accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Both answer, and the answers differ.
    Answer,
    /// Only one of them answers, or an answer contradicts itself.
    Refusal,
}

/// A run of one test.
#[derive(Debug)]
pub(crate) struct Run {
    name: &'static str,
    n_cases: usize,
    known: BTreeMap<Known, usize>,
    expected: &'static [Known],
    differences: Vec<String>,
    started: Instant,
}

impl Run {
    pub(crate) fn new(name: &'static str) -> (Self, Random) {
        let run = Self {
            name,
            n_cases: 0,
            known: BTreeMap::new(),
            expected: &[],
            differences: Vec::new(),
            started: Instant::now(),
        };
        (run, Random::of(name))
    }

    /// Declares differences that should occur. The run reports a declared difference that does not occur,
    /// because an unneeded exception can hide a bug.
    pub(crate) fn expects(&mut self, expected: &'static [Known]) {
        self.expected = expected;
    }

    /// Compares one case in `dir`. Returns false after enough differences.
    pub(crate) fn case<Q: Smaller + std::fmt::Debug>(
        &mut self,
        dir: &Path,
        files: &Files,
        query: &Q,
        compare: &dyn Fn(&Path, &Files, &Q) -> Verdict,
    ) -> bool {
        self.n_cases += 1;
        match compare(dir, files, query) {
            Verdict::Same => (),
            Verdict::Known(known) => *self.known.entry(known).or_default() += 1,
            Verdict::Differs(kind, _) => {
                let differs = |files: &Files, query: &Q| {
                    let dir = files.lay();
                    match compare(dir.path(), files, query) {
                        Verdict::Differs(same, shown) if same == kind => Some(shown),
                        _ => None,
                    }
                };
                let (files, smallest, shown) = shrink(files, query, &differs);
                let tree = files.shown();
                self.differences.push(format!("from {query:?}\n{smallest:?}\n{tree}{shown}"));
            }
        }
        self.differences.len() < MAX_DIFFERENCES
    }

    /// Compares one case that is already small, and continues after a difference.
    pub(crate) fn named<Q: std::fmt::Debug>(
        &mut self,
        name: &str,
        dir: &Path,
        files: &Files,
        query: &Q,
        compare: &dyn Fn(&Path, &Files, &Q) -> Verdict,
    ) {
        self.n_cases += 1;
        match compare(dir, files, query) {
            Verdict::Same => (),
            Verdict::Known(known) => *self.known.entry(known).or_default() += 1,
            Verdict::Differs(_, shown) => {
                let tree = files.shown();
                self.differences.push(format!("{name}\n{query:?}\n{tree}{shown}"));
            }
        }
    }

    /// Prints the number of cases. Fails if one of them differed.
    #[track_caller]
    pub(crate) fn end(self) {
        let Self { name, n_cases, known, expected, differences, started } = self;
        let seconds = started.elapsed().as_secs_f64();
        say(&format!("differential: {name}: {n_cases} cases, {seconds:.1} s, known {known:?}"));
        let missing = expected.iter().filter(|one| !known.contains_key(one));
        for missing in missing {
            say(&format!("differential: {name}: the known difference {missing:?} did not occur"));
        }
        let n = differences.len();
        let shown = differences.join("\n--------\n");
        assert!(n == 0, "{name}: {n} differences with QUACKD_DIFF_SEED={}\n{shown}", seed());
    }
}
