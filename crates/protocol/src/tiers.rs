//! Tiers of confinement: their names for programs, and their words for display.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::fmt;

/// Layers of confinement. Tier C of the design (another program's namespaces) does not exist here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Namespaces, Landlock, seccomp, and a control group.
    A,
    /// Like A, without a control group.
    B,
    /// Landlock and seccomp only: no private view of the file system, no process namespace.
    D,
    /// macOS Seatbelt. Not tested.
    M,
    /// No confinement.
    #[serde(rename = "unconfined")]
    Unconfined,
}

impl Tier {
    /// Returns the name in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::D => "D",
            Self::M => "M",
            Self::Unconfined => "unconfined",
        }
    }

    /// Returns the display text.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::A | Self::B => "confined",
            Self::D | Self::M => "partly confined",
            Self::Unconfined => "not confined",
        }
    }

    /// Returns true if the worker has its own namespaces.
    #[must_use]
    pub fn has_namespaces(self) -> bool {
        matches!(self, Self::A | Self::B)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Display text of a tier that this version does not know.
pub const UNKNOWN: &str = "confinement unknown";

/// Reads a value that another version or a hostile worker may have invented: `None` if it is unknown.
pub(crate) fn known<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(from)?;
    Ok(T::deserialize(value).ok())
}

/// Layers of confinement that work on this system for this user, found by attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Probe {
    /// `None` if all needed kinds of namespaces can be created and a new `/proc` can be mounted in them. Otherwise the
    /// failed step and its reason.
    pub namespaces_fail: Option<String>,
    /// Version of Landlock, 0 without.
    pub landlock_abi: i32,
    /// True if seccomp can filter system calls.
    pub seccomp: bool,
    /// True if process 1 of a worker can carry out system calls of commands. Git directories then have no protected
    /// name that a program outside can expose by replacing it.
    #[serde(default)]
    pub held_calls: bool,
    /// True if package caches can be writable through a private layer.
    pub overlay: bool,
    /// True for user 0.
    pub is_root: bool,
    /// True on macOS with its sandbox program.
    pub seatbelt: bool,
}

/// Kind of protection of git directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitProtection {
    /// Git directories are read-only mounts with writable directories on top. Process 1 of the worker carries out what
    /// git may change besides. A program outside that replaces a name removes no mount.
    Top,
    /// Each protected name is a read-only mount. A program outside that replaces the name removes the mount.
    Names,
}

impl GitProtection {
    /// Returns the display text.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Top => "read-only mounts; the worker carries out what git may change",
            Self::Names => {
                "each protected name is a mount, which a program outside removes if it replaces the name"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::SandboxReport;
    use serde_json::json;

    #[test]
    fn every_tier_has_words_and_an_unknown_one_can_be_read() {
        for (name, words) in [
            ("A", Some("confined")),
            ("B", Some("confined")),
            ("D", Some("partly confined")),
            ("M", Some("partly confined")),
            ("unconfined", Some("not confined")),
            ("E", None),
        ] {
            let report = json!({"tier": name, "policy": "newer", "network": true});
            let report: SandboxReport = serde_json::from_value(report).unwrap();
            assert_eq!(report.tier.map(Tier::in_words), words, "{name}");
            assert!(report.tier.is_none_or(|tier| tier.name() == name), "{name}");
            assert_eq!((report.policy, report.network), (None, true));
        }
    }
}
