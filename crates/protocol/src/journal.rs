//! The journal of calls: one line of JSON for each call that ended, and one for the beginning of a long one, in the files of `journal/` in the state directory.
//! The supervisor writes it, `quack log` reads it.

use crate::SessionId;
use crate::denial::Denial;
use crate::limits::MAX_JOURNAL_TEXT_BYTES;
use crate::mask::{after_cut_key, cut_at_word, end_at_word, masked};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Value of [`CallRecord::tool`] for the end of a background job. The arguments are `job` and `command`, the time is that
/// of the end, and the duration is the job's run time.
pub const JOB_END: &str = "job_end";

/// Value of [`CallRecord::tool`] for a record in place of calls that are missing, of any session. The arguments are `calls`,
/// their number, and `reason`; the time is that of the first, and the duration lasts until the last.
pub const JOURNAL_GAP: &str = "journal_gap";

/// Whether a record is the beginning of a background job. Its end has the same id.
#[must_use]
pub fn is_beginning_of_job(record: &CallRecord) -> bool {
    record.tool == JOB_END && record.outcome == CallEnd::Running
}

/// One call, or the beginning or end of a background job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// Id for `quack log show`: letters and digits, unique unless the clock was set back.
    pub id: String,
    /// Arrival of the call, in milliseconds since 1970.
    pub at_ms: i64,
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Display label of the session, such as `api/review`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Path of the session's workspace.
    pub workspace_path: String,
    /// Name of the client, as it gave it in `quack.hello`, or `agent` for the session's own agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Turn of the session's own agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// The tool, cut to 100 characters.
    pub tool: String,
    /// The arguments as an object, shortened to [`crate::limits::MAX_SHOWN_ARGUMENTS_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    /// Outcome of the call.
    pub outcome: CallEnd,
    /// Exit code of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that killed a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Time from the arrival to the answer, in milliseconds.
    pub duration_ms: u64,
    /// Operations that the sandbox denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Denial>,
    /// The first files that a file tool wrote, relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Number of files that a file tool wrote.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub n_files: u32,
    /// File with the whole output of a command, which may have been deleted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Answer of a command or of a call that failed, cut to [`MAX_JOURNAL_TEXT_BYTES`]. Answers of other tools, such as
    /// the content of a file, are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// The tool succeeded.
    Ok,
    /// The tool failed, or its command exited with another code than 0.
    Failed,
    /// The deadline ended the call.
    TimedOut,
    /// A client ended it.
    Aborted,
    /// The worker died.
    Died,
    /// It did not run, because the session or the machine was busy.
    Busy,
    /// It did not run for another reason.
    Refused,
    /// The daemon was killed while the call or the background job ran.
    DaemonDied,
    /// The calls are not in the journal: see [`JOURNAL_GAP`].
    Missing,
    /// It runs, or the daemon was killed while it ran. A later record with the same id has the end.
    Running,
}

impl CallEnd {
    /// Name of the outcome for people and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Aborted => "aborted",
            Self::Died => "worker died",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::DaemonDied => "ended with the daemon",
            Self::Missing => "not recorded",
            Self::Running => "running",
        }
    }
}

/// Calls that are missing in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalGap {
    /// Number of calls, and of ends of background jobs.
    pub n_calls: u64,
    /// Time of the first, in milliseconds since 1970.
    pub since_ms: i64,
    /// Time of the next record, in milliseconds since 1970.
    pub until_ms: i64,
    /// True if writing failed, false if the disk was almost full.
    pub has_failed: bool,
}

impl JournalGap {
    /// Returns the record in place of the calls.
    #[must_use]
    pub fn record(self) -> CallRecord {
        let reason = if self.has_failed {
            "the journal could not be written"
        } else {
            "the disk was almost full"
        };
        let arguments = serde_json::json!({ "calls": self.n_calls, "reason": reason });
        let number = |ms: i64| u64::try_from(ms).unwrap_or_default();

        CallRecord {
            id: format!("gap{}", id_of(number(self.until_ms))),
            at_ms: self.since_ms,
            session_id: SessionId(String::new()),
            session_name: String::new(),
            label: String::new(),
            workspace_path: String::new(),
            client: None,
            turn: None,
            tool: JOURNAL_GAP.to_owned(),
            arguments: serde_json::value::to_raw_value(&arguments).ok(),
            outcome: CallEnd::Missing,
            exit_code: None,
            signal: None,
            duration_ms: number(self.until_ms.saturating_sub(self.since_ms)),
            denials: Vec::new(),
            files: Vec::new(),
            n_files: 0,
            full_output_path: None,
            text: None,
        }
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Returns a text for the journal: both ends of a text of more than [`MAX_JOURNAL_TEXT_BYTES`].
#[must_use]
pub fn cut_text(text: &str) -> String {
    if text.len() <= MAX_JOURNAL_TEXT_BYTES {
        return text.to_owned();
    }
    both_ends(text, text, text.len())
}

/// Longest key that [`cut_masked`] recognizes if a cut divides it, in bytes.
const MAX_DIVIDED_KEY: usize = 4096;

/// Like [`cut_text`], but masks the keys. The time does not grow with the text: only what stays is searched, and
/// [`MAX_DIVIDED_KEY`] bytes around it.
#[must_use]
pub fn cut_masked(text: &str) -> String {
    let n_searched = MAX_JOURNAL_TEXT_BYTES / 2 + MAX_DIVIDED_KEY;
    if text.len() <= 2 * n_searched {
        return cut_text(&masked(text));
    }

    let start = masked(cut_at_word(text, n_searched));
    let end = masked(after_cut_key(end_at_word(text, n_searched)));
    both_ends(&start, &end, text.len())
}

/// Joins the beginning of one text and the end of another, which are parts of a text of `n_bytes`.
fn both_ends(start: &str, end: &str, n_bytes: usize) -> String {
    let half = MAX_JOURNAL_TEXT_BYTES / 2;
    let (start, end) = (cut_at_word(start, half), end_at_word(end, half));
    let n_left_out = n_bytes.saturating_sub(start.len() + end.len());
    format!("{start}\n[... {n_left_out} bytes are not in the journal]\n{end}")
}

/// Returns the id of a call from its number, which is a time in milliseconds.
#[must_use]
pub fn id_of(mut number: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut id = Vec::new();
    loop {
        let digit = usize::try_from(number % 36).unwrap_or_default();
        id.push(DIGITS.get(digit).map_or('0', |digit| char::from(*digit)));
        number /= 36;
        if number == 0 {
            return id.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_both_ends_and_whole_characters() {
        assert_eq!(cut_text("short"), "short");
        let long = format!("begin{}end", "é".repeat(MAX_JOURNAL_TEXT_BYTES));
        let cut = cut_text(&long);
        assert!(cut.starts_with("begin") && cut.ends_with("end"), "{cut:.40}");
        assert!(cut.len() < MAX_JOURNAL_TEXT_BYTES + 100, "{}", cut.len());
        assert!(cut.contains(" bytes are not in the journal]"));
    }

    #[test]
    fn keys_at_both_ends_of_a_long_text_are_masked_wherever_it_is_cut() {
        let key = format!("sk-{}", "a1B2c3D4".repeat(5));
        let block = format!(
            "-----BEGIN RSA PRIVATE KEY-----\n{}-----END RSA PRIVATE KEY-----",
            "MIIEpAIBAAKCAQEA7bq0\n".repeat(150)
        );
        for secret in [key.as_str(), &block] {
            for n_bytes in [0, 9_000, 100_000] {
                for around in (0..MAX_JOURNAL_TEXT_BYTES).step_by(97) {
                    let around = "word ".repeat(around / 5);
                    let middle = "word ".repeat(n_bytes / 5);
                    let text = format!("{around}{secret} {middle} {secret} {around}");
                    let cut = cut_masked(&text);
                    assert!(cut.len() < MAX_JOURNAL_TEXT_BYTES + 100, "{}", cut.len());
                    assert!(!cut.contains("a1B2") && !cut.contains("c3D4"), "{cut}");
                    assert!(!cut.contains("MIIEpAIB") && !cut.contains("7bq0"), "{cut}");
                }
            }
        }
    }

    #[test]
    fn ids_grow_with_time() {
        assert_eq!(id_of(0), "0");
        assert_eq!(id_of(35), "z");
        assert_eq!(id_of(36), "10");
        assert_eq!(id_of(1_764_150_000_000).len(), 8);
    }
}
