//! Accesses that the sandbox of the session's workers denied, as the workers report them. Counts all and keeps the last
//! ones. For display only; no decision depends on them.

use crate::clock::now_text;
use crate::pool::snapshot::Denials;
use crate::session::actor::SessionActor;
use quackd_protocol::client::TimedDenial;
use quackd_protocol::denial::{Denial, one_line};
use quackd_protocol::worker::{MAX_HINT_BYTES, MAX_LISTED, ToolReport};
use std::rc::Rc;

/// Maximum number of denials that are kept per session.
const MAX_DENIALS: usize = 64;

/// Maximum number of surviving processes that one call can add to the metric. The worker's number is not trusted.
const MAX_SURVIVORS: u32 = 10_000;

/// Maximum length of a tool's name, in characters.
const MAX_TOOL_CHARS: usize = 100;

impl Denials {
    fn note(&mut self, tool: &str, denials: &[Denial]) {
        for denial in denials.iter().take(MAX_LISTED) {
            self.total = self.total.saturating_add(1);
            if MAX_DENIALS <= self.last.len() {
                self.last.pop_front();
            }
            self.last.push_back(TimedDenial {
                at: now_text(),
                tool: tool.chars().take(MAX_TOOL_CHARS).collect(),
                // Create a new value, because the worker's texts may be too long.
                denial: Denial::new(denial.kind, denial.target.as_deref(), denial.likely),
            });
        }
    }
}

impl SessionActor {
    /// Records the denials and surviving processes of a call.
    pub(super) fn note_report(&mut self, tool: &str, report: &mut ToolReport) {
        for denial in &mut report.denials {
            *denial = Denial::new(denial.kind, denial.target.as_deref(), denial.likely);
        }
        for line in &mut report.audit {
            *line = one_line(line);
        }
        if let Some(hint) = &mut report.hint {
            hint.truncate(hint.floor_char_boundary(MAX_HINT_BYTES));
        }
        if !report.denials.is_empty() {
            Rc::make_mut(&mut self.worker.denials).note(tool, &report.denials);
        }
        if report.survivors != 0 {
            self.services.metrics.survivors.add(report.survivors.min(MAX_SURVIVORS).into());
            tracing::warn!(session = %self.session, tool, left = report.survivors, "command left processes that could not be killed");
        }
        self.worker.workspace_replaced |= report.workspace_gone;
        if report.truncated {
            self.services.pool.spills.notify_write();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::denial::DenialKind;

    #[test]
    fn the_last_ones_are_kept_and_all_are_counted() {
        let mut denials = Denials::default();
        let of = |n: usize| Denial::new(DenialKind::Write, Some(&format!("/{n}")), false);
        for n in 0..100 {
            denials.note("bash", &[of(n)]);
        }
        assert_eq!((denials.total, denials.last.len()), (100, MAX_DENIALS));
        assert_eq!(denials.last.back().unwrap().denial, of(99));
        denials.note("bash", &(0..1000).map(of).collect::<Vec<_>>());
        assert_eq!(denials.total, 108);
    }
}
