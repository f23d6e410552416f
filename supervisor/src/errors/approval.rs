//! Texts about questions to the user.

use quackd_protocol::approval::{Decision, RecentApproval};

/// Describes the end of a question: `allowed for this session by quack (process 4711)`.
pub(super) fn closed(record: &RecentApproval) -> String {
    let by = record.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    match (record.decision, record.scope) {
        (Some(Decision::Allow), Some(scope)) => format!("allowed {}{by}", scope.in_words()),
        (Some(Decision::Deny), _) => format!("denied{by}"),
        _ => record.reason.clone(),
    }
}
