//! The measures, in groups. Each group starts its own daemon and stops it.

mod death;
mod fanout;
mod fleet;
mod flood;
mod ping;
mod rates;
mod search;
mod spawn;
mod start;
mod tools;

use crate::report::Row;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// A tenth of the rounds, to see that everything works.
    pub(crate) quick: bool,
}

impl Effort {
    /// Rounds for a measure that needs `full` of them for a stable median.
    fn rounds(self, full: usize) -> usize {
        if self.quick { full.div_ceil(10).max(2) } else { full }
    }
}

/// Measures that share a daemon.
pub(crate) struct Group {
    /// What the command line's words are looked for in.
    pub(crate) name: &'static str,
    pub(crate) measure: fn(Effort) -> anyhow::Result<Vec<Row>>,
}

/// All of them, in the table's order.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: "start", measure: start::measure },
    Group { name: "spawn", measure: spawn::measure },
    Group { name: "ping", measure: ping::measure },
    Group { name: "tools", measure: tools::measure },
    Group { name: "search", measure: search::measure },
    Group { name: "fleet", measure: fleet::measure },
    Group { name: "thousand", measure: fleet::measure_thousand },
    Group { name: "death", measure: death::measure },
    Group { name: "rates", measure: rates::measure },
    Group { name: "flood", measure: flood::measure },
    Group { name: "fanout", measure: fanout::measure },
];
