//! One value and its origin. [`crate::Config`] consists of these.

use quackd_protocol::foreign_text::one_line;
use std::fmt;
use std::path::PathBuf;

/// One value and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value, which has passed the checks of its key.
    pub value: T,
    /// Source of the value, for `quack config show --origin` and for texts.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// Creates a setting with the built-in default.
    pub(crate) fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }
}

/// Origin of a value, the weakest first. Shown as `default`, `/path:7`, `QUACKD_LOG` or `--flag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No source sets the key.
    Default,
    /// The configuration file has the key.
    File {
        /// Path of the configuration file.
        path: PathBuf,
        /// Line of the value, from 1.
        line: usize,
    },
    /// A variable of the environment has the value.
    Environment {
        /// Name of the variable.
        variable: &'static str,
    },
    /// The command line. Set by the subcommand that has the flag.
    Flag {
        /// The flag with its dashes.
        flag: &'static str,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", one_line(&path.to_string_lossy())),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { flag } => f.write_str(flag),
        }
    }
}

/// An amount of US dollars, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars {
    micros: u64,
}

impl Dollars {
    /// Rounds up, so that no limit becomes 0, which means none. `None` if this is no amount.
    pub(crate) fn of(usd: f64) -> Option<Self> {
        let micros = (usd * 1e6).ceil();
        // Below 2^53, so that the conversion is exact.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
        (0.0..1e15).contains(&micros).then_some(Self { micros: micros as u64 })
    }

    /// Returns the amount in US dollars.
    #[must_use]
    pub fn usd(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let micros = self.micros as f64;
        micros / 1e6
    }

    /// Whether this is no limit.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.micros == 0
    }
}

/// Links to servers of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardSettings {
    /// Loopback address of the listener, or `off`. It opens with the first link.
    pub listen: Setting<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_shown_as_one_line() {
        let shown = [
            Origin::Default,
            Origin::File { path: "/a\nb/quackd.toml".into(), line: 7 },
            Origin::Environment { variable: "QUACKD_LOG" },
            Origin::Flag { flag: "--verbose" },
        ]
        .map(|origin| origin.to_string());
        assert_eq!(shown, ["default", "/a\u{fffd}b/quackd.toml:7", "QUACKD_LOG", "--verbose"]);
    }
}
