//! The deadline of a tool call: the parameter of its method, the argument of its command, or a default. `tool.rs` reads
//! the requests, and `run_call.rs` sets the deadline.

use crate::events::CallFacts;
use quackd_config::{Origin, Setting};
use quackd_protocol::limits::{MAX_JOB_TIME, MAX_TOOL_DEADLINE, MIN_TOOL_DEADLINE};
use std::time::Duration;

/// Times that a caller sets or that are known of it.
#[derive(Debug, Default)]
pub(super) struct RequestedTime {
    /// Parameter of the method, in milliseconds.
    pub(super) timeout_ms: Option<u64>,
    /// Time after which the caller gives up, if it is known.
    pub(super) gives_up: Option<Duration>,
    /// Deadline in milliseconds if neither the caller nor the configuration sets one.
    pub(super) fallback_ms: Option<u64>,
    /// Whether a command without a deadline of the caller or the configuration has none.
    pub(super) has_no_deadline: bool,
}

impl RequestedTime {
    /// Returns the default deadline. The caller's default only replaces the built-in one.
    pub(super) fn default_deadline(&self, configured: &Setting<Duration>) -> Duration {
        match (&configured.origin, self.fallback_ms) {
            (Origin::Default, _) if self.has_no_deadline => MAX_JOB_TIME,
            (Origin::Default, Some(ms)) => Duration::from_millis(ms),
            _ => configured.value,
        }
    }

    /// Returns the call's deadline: the method's parameter, else bash's `timeout_ms` argument, else the default.
    pub(super) fn deadline(&self, facts: &CallFacts, default: Duration) -> Duration {
        // For a background job, `timeout_ms` limits the job. The call itself is answered at once.
        let argument = facts.timeout_ms.filter(|_| !facts.background);
        let requested = self.timeout_ms.or(argument).map(Duration::from_millis);

        let longest = match self.gives_up {
            Some(gives_up) => gives_up,
            None if self.has_no_deadline && requested.is_none() => MAX_JOB_TIME,
            None => MAX_TOOL_DEADLINE,
        };
        requested.unwrap_or(default).clamp(MIN_TOOL_DEADLINE, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::SessionCall;
    use quackd_protocol::limits::LOCAL_APP_DEADLINE;
    use quackd_protocol::worker::CallSpec;

    #[test]
    fn deadlines_come_from_the_caller_within_bounds() {
        let check_for = |gives_up, tool: &str, arguments: &str, timeout_ms, expected: Duration| {
            let spec =
                CallSpec { tool: tool.into(), arguments: arguments.into(), ..CallSpec::default() };
            let time = RequestedTime { timeout_ms, gives_up, ..RequestedTime::default() };
            assert_eq!(
                time.deadline(&SessionCall::new(spec).facts, Duration::from_secs(30)),
                expected,
                "{tool} {arguments} {timeout_ms:?}"
            );
        };
        let check = |tool: &str, arguments: &str, timeout_ms, expected| {
            check_for(None, tool, arguments, timeout_ms, expected);
        };
        check("bash", "{}", None, Duration::from_secs(30));
        check("bash", r#"{"timeout_ms":1500}"#, None, Duration::from_millis(1500));
        check("bash", r#"{"timeout_ms":1500}"#, Some(2000), Duration::from_secs(2));
        check("bash", r#"{"timeout_ms":"x"}"#, None, Duration::from_secs(30));
        check("bash", r#"{"timeout_ms":86400000}"#, None, Duration::from_secs(600));
        let job = r#"{"timeout_ms":100,"background":true}"#;
        check("bash", job, None, Duration::from_secs(30));
        check("bash", job, Some(2000), Duration::from_secs(2));
        let twice = r#"{"timeout_ms":1,"timeout_ms":1500,"background":true,"background":false}"#;
        check("bash", twice, None, Duration::from_millis(1500));
        check(
            "bash",
            r#"{"command":"\ud800","timeout_ms":1500}"#,
            None,
            Duration::from_millis(1500),
        );
        check("bash", "not json", None, Duration::from_secs(30));
        check("bash", "{}", Some(0), Duration::from_millis(100));
        check("grep_search", r#"{"timeout_ms":1500}"#, None, Duration::from_secs(30));
        let app = Some(LOCAL_APP_DEADLINE);
        check_for(app, "bash", "{}", None, Duration::from_secs(9));
        check_for(app, "bash", r#"{"timeout_ms":20000}"#, None, Duration::from_secs(9));
        check_for(app, "bash", r#"{"timeout_ms":1500}"#, None, Duration::from_millis(1500));
    }
}
