//! Filter of log lines by session, level and time. Used by `quack logs`.

use super::tail::LogLine;
use crate::args::logs::LogLevel;
use jiff::Timestamp;
use serde::Deserialize;
use std::borrow::Cow;

/// Conditions of the filter. Without any, every line passes, even one that is not in log format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// Id of a session. Lines without a session do not pass then.
    pub(super) session: Option<String>,
    /// Minimum severity.
    pub(super) level: Option<LogLevel>,
    pub(super) since: Option<Timestamp>,
}

/// Fields of a log line that the filter reads.
#[derive(Deserialize)]
struct LineFields<'a> {
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(borrow, default)]
    session: Option<Cow<'a, str>>,
}

impl Filter {
    /// Whether any condition is set.
    pub(super) fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// Whether a line passes. A line that is not in log format or was cut has no session.
    pub(super) fn lets(&self, line: &LogLine) -> bool {
        if !self.is_any() {
            return true;
        }

        let Ok(facts) = serde_json::from_slice::<LineFields<'_>>(&line.bytes) else { return false };
        let session = self.session.as_deref();
        session.is_none_or(|session| facts.session.as_deref() == Some(session))
            && self.level.is_none_or(|level| LogLevel::of(&facts.level) <= level)
            && self
                .since
                .is_none_or(|since| facts.timestamp.parse().is_ok_and(|at: Timestamp| since <= at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(session: &str, level: &str, time: &str) -> LogLine {
        let text = format!(
            r#"{{"timestamp":"2026-03-10T{time}Z","level":"{level}","message":"m","session":"{session}"}}"#
        );
        LogLine { bytes: text.into_bytes(), omitted: 0 }
    }

    #[test]
    fn lines_of_a_session_a_level_and_a_time_are_let_through_and_no_others() {
        let filter = Filter {
            session: Some("a".to_owned()),
            level: Some(LogLevel::Warn),
            since: Some("2026-03-10T12:00:00Z".parse().unwrap()),
        };
        for (line, is_wanted) in [
            (line("a", "WARN", "12:00:00"), true),
            (line("a", "ERROR", "13:00:00.25"), true),
            (line("a", "INFO", "13:00:00"), false),
            (line("a", "NEW", "13:00:00"), false),
            (line("ab", "WARN", "13:00:00"), false),
            (line("a", "WARN", "11:59:59.9"), false),
            (LogLine { bytes: b"thread panicked".to_vec(), omitted: 0 }, false),
            (
                LogLine {
                    bytes: br#"{"timestamp":"2026-03-10T13:00:00Z","level":"WARN"}"#.to_vec(),
                    omitted: 0,
                },
                false,
            ),
        ] {
            assert_eq!(filter.lets(&line), is_wanted, "{}", String::from_utf8_lossy(&line.bytes));
            assert!(Filter::default().lets(&line));
        }
    }
}
