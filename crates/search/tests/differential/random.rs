//! Repeatable random numbers. Called by everything that makes cases.

use std::io::Write as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// The default seed. It is fixed, so that a run fails because of a change and not by chance.
const USUAL_SEED: u64 = 20_251_115;

/// Returns the seed of this run. Prints it once, whether or not a test fails.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let seed = match std::env::var("QUACKD_DIFF_SEED").as_deref() {
            Ok("new") => SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs(),
            Ok(number) => number.parse().expect("QUACKD_DIFF_SEED is a number or `new`"),
            Err(_) => USUAL_SEED,
        };
        say(&format!("differential: QUACKD_DIFF_SEED={seed}"));
        seed
    })
}

/// Returns the number of cases, where `usual` is the number without `QUACKD_DIFF_CASES`.
pub(crate) fn cases(usual: usize) -> usize {
    let percent = std::env::var("QUACKD_DIFF_CASES").ok().map_or(100, |text| {
        text.parse::<usize>().expect("QUACKD_DIFF_CASES is a number, in percent")
    });
    (usual * percent / 100).max(1)
}

/// Writes to the file descriptor directly, so that the line appears even if the test passes.
pub(crate) fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).expect("write to stderr");
}

/// Random numbers that choose cases.
#[derive(Debug, Clone)]
pub(crate) struct Random(quackd_testkit::Random);

impl Random {
    /// Creates the generator of one test from the seed of the run and the name of the test, so that tests
    /// differ.
    pub(crate) fn of(test: &str) -> Self {
        let name = test.bytes().fold(0u64, |hash, byte| {
            hash.rotate_left(7).wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        Self(quackd_testkit::Random::from_seed(seed() ^ name))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// Returns a number below `n`. `n` must not be zero.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).expect("a small number");
        usize::try_from(self.next() % n).expect("a small number")
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}
