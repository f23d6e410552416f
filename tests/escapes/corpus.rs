//! The cases of `corpus.jsonl`.

use super::modes::{Mode, WITH_LIMITS};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

const CORPUS: &str = include_str!("corpus.jsonl");

/// The case that exhausts memory.
pub(super) const TAKES_MEMORY: &str = "res-06";

/// One attempt to escape. docs/escapes.md explains the fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) id: String,
    pub(super) tries: String,
    /// Behavior of a good sandbox. For readers only.
    #[serde(default, rename = "correct")]
    _correct: String,
    #[serde(rename = "class")]
    _class: String,
    pub(super) profile: String,
    /// Shell script that runs before the calls, unconfined as the user.
    #[serde(default)]
    pub(super) setup: String,
    /// Tool name of the corpus; `calls.rs` translates it.
    pub(super) tool: String,
    pub(super) args: Value,
    pub(super) must_not: Vec<Value>,
    /// Programs without which the case escapes nowhere.
    #[serde(default)]
    pub(super) needs: Vec<String>,
    /// Reason why the case may also hold with full access.
    pub(super) may: Option<String>,
    /// Reason for not running it.
    pub(super) skip: Option<String>,
    /// The harm that it would do to the machine without confinement.
    pub(super) only_confined: Option<String>,
    /// The harm that it would do to the machine without limits.
    pub(super) only_limited: Option<String>,
    /// Reasons of accepted escapes by tier.
    #[serde(default)]
    pub(super) accepted: BTreeMap<String, String>,
}

impl Case {
    /// True if the case uses no command, so only quackd's own tools can stop it.
    pub(super) fn is_without_commands(&self) -> bool {
        !matches!(&*self.tool, "bash" | "seq")
    }

    /// True if the case runs without write access.
    pub(super) fn is_read_only(&self) -> bool {
        self.profile == "read-only"
    }

    /// Reason for not running it in this mode.
    pub(super) fn left_out(&self, mode: &Mode) -> Option<&str> {
        let confined = self.only_confined.as_deref().filter(|_| mode.is_unconfined());
        let limited = self.only_limited.as_deref().filter(|_| mode.tier != WITH_LIMITS);
        self.skip.as_deref().or(confined).or(limited)
    }

    /// Configuration of the limit that stops it. By default there is none.
    pub(super) fn limits(&self) -> &'static str {
        if self.id == "res-05" { "[limits]\nfile_mb = 256\n" } else { "" }
    }
}

/// Returns every case, in the order of the file.
pub(super) fn cases() -> Vec<Case> {
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    CORPUS.lines().map(parse).collect()
}
