//! The measures, in groups. Each group starts and stops its own daemon.

mod clients;
mod compare;
mod death;
mod fanout;
mod fleet;
mod flood;
mod grep;
mod peer;
mod ping;
mod rates;
mod sandboxes;
mod search;
mod spawn;
mod start;
mod tools;

use crate::report::Row;
use crate::tell;

/// Number of measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Runs a tenth of the rounds, to check that everything works.
    pub(crate) quick: bool,
}

impl Effort {
    /// Returns the rounds for a measure that needs `full` of them for a stable median.
    fn rounds(self, full: usize) -> usize {
        if self.quick { full.div_ceil(10).max(2) } else { full }
    }
}

/// Measures that share a daemon.
pub(crate) struct Group {
    /// Name, which the words of the command line select.
    pub(crate) name: &'static str,
    pub(crate) measure: fn(Effort) -> anyhow::Result<Vec<Row>>,
}

/// All groups, in the order of the table.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: "start", measure: start::measure },
    Group { name: "spawn", measure: spawn::measure },
    Group { name: "ping", measure: ping::measure },
    Group { name: "tools", measure: tools::measure },
    Group { name: "search", measure: search::measure },
    Group { name: "grep", measure: grep::measure },
    Group { name: "peer", measure: peer::measure },
    Group { name: "fleet", measure: fleet::measure },
    Group { name: "thousand", measure: fleet::measure_thousand },
    Group { name: "death", measure: death::measure },
    Group { name: "rates", measure: rates::measure },
    Group { name: "flood", measure: flood::measure },
    Group { name: "fanout", measure: fanout::measure },
    Group { name: "sandboxes", measure: sandboxes::measure },
    Group { name: "clients", measure: clients::measure },
];

/// Reports that an optional program has no row.
fn tell_not_installed(name: &str, how: &str) {
    tell(&format!("not measured: {name} is not installed ({how})"));
}

/// Reports that an optional program is installed and failed.
fn tell_failed(name: &str, error: &anyhow::Error) {
    tell(&format!("not measured: {name} does not work here: {error:#}"));
}
