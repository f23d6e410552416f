//! Far errands: one piece of work with an engine, in the separate process `quack far-errand`. It runs unconfined as the
//! user, because the client of an engine needs the user's keys.
//!
//! The process gets one frame and sends one frame, with lengths as in [`crate::worker`]. It ends when the supervisor closes
//! the channel.

use crate::far::FarStart;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Tags of [`ToErrand`].
pub const TO_ERRAND_TAGS: &[&str] = &["run", "send"];

/// Tags of [`FromErrand`].
pub const FROM_ERRAND_TAGS: &[&str] = &["ran", "sent", "failed"];

/// Longest time limit of an errand, in milliseconds. A longer one is shortened.
pub const MAX_ERRAND_MS: u64 = 10 * 60 * 1000;

/// Kept bytes of each output of a command, from its beginning.
pub const MAX_ERRAND_OUTPUT: usize = 16 * 1024;

/// Supervisor to process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToErrand {
    /// Run a command to its end. Answered by [`FromErrand::Ran`].
    Run(RunErrand),
    /// Move the copy of a session. Answered by [`FromErrand::Sent`].
    Send(Box<SendErrand>),
}

/// Moves the copy of a session between this machine and another one, or deletes it there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendErrand {
    /// Argument lists that reach the other machine. `resume`, `poll` and `grace_ms` are not used.
    pub far: FarStart,
    /// Id of the session, which names its directory there.
    pub session: String,
    /// Kind of the work.
    pub work: SendWork,
    /// As [`RunErrand::limit_ms`], with the wait for a place.
    pub limit_ms: u64,
}

/// Kind of a [`SendErrand`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendWork {
    /// Send this packed file, and unpack it there.
    Put {
        /// The file on this machine.
        file: PathBuf,
        /// Whether the copy there is made again.
        is_new: bool,
        /// Limits of the copy.
        limits: SendLimits,
    },
    /// Pack the copy there, and write it to this file.
    Take {
        /// The file on this machine. It is replaced.
        file: PathBuf,
        /// Limits of the copy.
        limits: SendLimits,
    },
    /// Delete the copy there.
    Remove {},
}

/// Limits of a copy that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendLimits {
    /// Most files.
    pub max_files: u64,
    /// Largest size of the files in bytes.
    pub max_bytes: u64,
}

/// Result of a [`SendErrand`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentErrand {
    /// Absolute path of the copy there. Foreign text.
    pub path: String,
    /// Sent or received bytes.
    pub bytes: u64,
    /// Lines for the user. Foreign text.
    pub notes: Vec<String>,
}

/// A command on this machine, such as one that creates a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunErrand {
    /// Complete argument list: no shell reads it. Not empty.
    pub words: Vec<String>,
    /// Complete environment.
    pub env: Vec<(String, String)>,
    /// Time after which the command and its processes are stopped, in milliseconds. At most [`MAX_ERRAND_MS`].
    pub limit_ms: u64,
}

/// Process to supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromErrand {
    /// The command has ended.
    Ran(RanErrand),
    /// The copy was moved or deleted.
    Sent(SentErrand),
    /// The work was not done, or not to its end.
    Failed {
        /// Reason, one line for the user.
        text: String,
    },
}

/// A command that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanErrand {
    /// Exit code. `None` after a signal, and after the time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Whether the time limit ended it.
    #[serde(default)]
    pub timed_out: bool,
    /// Beginning of its standard output, at most [`MAX_ERRAND_OUTPUT`] bytes. Foreign text.
    pub stdout: String,
    /// End of its error output, with the same limit. Foreign text.
    pub stderr: String,
}

impl ToErrand {
    /// Time limit of the work in milliseconds.
    #[must_use]
    pub fn limit_ms(&self) -> u64 {
        let limit_ms = match self {
            Self::Run(errand) => errand.limit_ms,
            Self::Send(errand) => errand.limit_ms,
        };
        limit_ms.min(MAX_ERRAND_MS)
    }
}
