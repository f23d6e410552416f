//! Wall-clock time as text, for display only.

/// Current time in UTC with whole seconds, in the format of `metadata.json` and the replies.
pub(crate) fn now_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
