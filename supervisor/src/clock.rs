//! Times in replies and files: the wall clock as text, for display only, and durations in milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Current time in UTC with whole seconds, in the format of `metadata.json` and the replies.
pub(crate) fn now_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Milliseconds for the wire.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970, for records. Earlier times count as 1970.
pub(crate) fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
