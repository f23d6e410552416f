//! Measured values and their statistics.

use std::time::{Duration, Instant};

/// At least one value, in ascending order.
#[derive(Debug, Clone)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Returns `None` if `values` is empty.
    pub(crate) fn new(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self(values))
    }

    /// Returns the number of values.
    pub(crate) fn n(&self) -> usize {
        self.0.len()
    }

    /// Returns the median.
    pub(crate) fn median(&self) -> f64 {
        self.at(self.n() / 2)
    }

    /// Returns the smallest value that at least 99 % of the values do not exceed. With fewer than 100 values,
    /// this is the maximum.
    pub(crate) fn p99(&self) -> f64 {
        self.at((self.n() * 99).div_ceil(100).saturating_sub(1))
    }

    /// Returns the minimum.
    pub(crate) fn lowest(&self) -> f64 {
        self.at(0)
    }

    fn at(&self, index: usize) -> f64 {
        self.0.get(index).or_else(|| self.0.last()).copied().unwrap_or(f64::NAN)
    }
}

/// Measures `once` after a warm-up of a tenth as many rounds. Runs at least one round, then stops after
/// `rounds` or `limit`. Returns seconds.
pub(crate) fn time_rounds(
    rounds: usize,
    limit: Duration,
    mut once: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let until = Instant::now() + limit;
    for _ in 0..rounds.div_ceil(10) {
        once()?;
        if until < Instant::now() {
            break;
        }
    }
    let mut times = Vec::with_capacity(rounds);
    while times.is_empty() || (times.len() < rounds && Instant::now() < until) {
        let begin = Instant::now();
        once()?;
        times.push(begin.elapsed().as_secs_f64());
    }
    Ok(times)
}
