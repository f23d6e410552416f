//! Call durations by tool and outcome, for the histograms of `quack.metrics`. One instance per daemon, in
//! [`crate::metrics::Metrics`]. Updated when a call is answered.

use quackd_protocol::tools;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds. Calls take either milliseconds or minutes.
pub(crate) const BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];

/// Label for an unknown tool, because clients may send any name.
const OTHER: &str = "other";

/// Outcome of a call, as a label of its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Ok,
    /// The tool failed.
    Error,
    TimedOut,
    Aborted,
    WorkerDied,
    /// Not run, because no worker or slot was available.
    Busy,
    /// Not run for another reason.
    Refused,
}

impl CallOutcome {
    const ALL: [Self; 7] = [
        Self::Ok,
        Self::Error,
        Self::TimedOut,
        Self::Aborted,
        Self::WorkerDied,
        Self::Busy,
        Self::Refused,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::TimedOut => "timed_out",
            Self::Aborted => "aborted",
            Self::WorkerDied => "worker_died",
            Self::Busy => "busy",
            Self::Refused => "refused",
        }
    }
}

/// Calls of one tool with one outcome.
#[derive(Debug)]
struct LatencySeries {
    tool: &'static str,
    outcome: CallOutcome,
    /// Calls in each bucket, not cumulative. Calls above the last bound are only in `count`.
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
}

/// Durations of all calls. The number of series is fixed, regardless of the names that clients send.
#[derive(Debug)]
pub(crate) struct CallLatencies(Vec<LatencySeries>);

/// Values of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Histogram {
    pub(crate) tool: &'static str,
    pub(crate) outcome: &'static str,
    /// Number of calls up to each of [`BOUNDS`].
    pub(crate) cumulative: Vec<u64>,
    pub(crate) count: u64,
    pub(crate) sum: Duration,
}

impl Default for CallLatencies {
    fn default() -> Self {
        let series = |tool| {
            CallOutcome::ALL.map(|outcome| LatencySeries {
                tool,
                outcome,
                buckets: Default::default(),
                count: AtomicU64::new(0),
                sum_us: AtomicU64::new(0),
            })
        };
        Self(tools::all().map(|tool| tool.name).chain([OTHER]).flat_map(series).collect())
    }
}

impl CallLatencies {
    /// Records an answered call.
    pub(crate) fn note(&self, tool: &str, outcome: CallOutcome, elapsed: Duration) {
        let tool = tools::find(tool).map_or(OTHER, |tool| tool.name);
        let series = self.0.iter().find(|it| it.tool == tool && it.outcome == outcome);
        // Every tool has a series for each outcome.
        let Some(series) = series else { return };

        let seconds = elapsed.as_secs_f64();
        let fits = BOUNDS.iter().position(|bound| seconds <= *bound);
        // A reader may see a call in some counters only. The difference is gone at its next reading.
        if let Some(bucket) = fits.and_then(|at| series.buckets.get(at)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }

        series.count.fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        series.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Returns the series with at least one call.
    pub(crate) fn histograms(&self) -> Vec<Histogram> {
        let of = |series: &LatencySeries| {
            let mut sum = 0_u64;
            let cumulative = series.buckets.iter().map(|bucket| {
                sum = sum.saturating_add(bucket.load(Ordering::Relaxed));
                sum
            });
            Histogram {
                tool: series.tool,
                outcome: series.outcome.name(),
                cumulative: cumulative.collect(),
                count: series.count.load(Ordering::Relaxed),
                sum: Duration::from_micros(series.sum_us.load(Ordering::Relaxed)),
            }
        };
        self.0.iter().map(of).filter(|histogram| histogram.count != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_tool_outcome_and_time_and_unknown_tools_together() {
        let times = CallLatencies::default();
        assert_eq!(times.histograms(), []);
        for ms in [5, 6, 2000, 700_000] {
            times.note("bash", CallOutcome::Ok, Duration::from_millis(ms));
        }
        for tool in ["nonsense\"", "more\n"] {
            times.note(tool, CallOutcome::Refused, Duration::from_millis(1));
        }
        let found = times.histograms();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].tool, found[0].outcome, found[0].count), ("bash", "ok", 4));
        assert_eq!(found[0].cumulative, [1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3]);
        assert_eq!(found[0].sum, Duration::from_millis(702_011));
        assert_eq!((found[1].tool, found[1].outcome, found[1].count), ("other", "refused", 2));
    }

    #[test]
    fn bounds_grow_and_are_written_as_they_are() {
        assert!(BOUNDS.is_sorted_by(|a, b| a < b));
        let texts = BOUNDS.map(|bound| bound.to_string()).join(" ");
        assert_eq!(texts, "0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30 120 600");
    }
}
