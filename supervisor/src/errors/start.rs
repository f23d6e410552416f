//! Errors of the daemon's start, and whether another start can succeed. [`crate::service::daemon`] returns them. The
//! command line shows them and exits with a code for the service manager.

use quackd_config::{ConfigError, Origin};
use quackd_egress::EgressError;
use quackd_home::HomeError;
use quackd_home::own_file::NotOurFile;
use quackd_ipc::listener::BindError;
use quackd_policy::PolicyError;
use quackd_service::ActivationError;
use std::path::PathBuf;

/// The reason why the daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The state directory cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configured sandbox policy is not allowed.
    // The text contains the reason, like that of other configuration errors.
    #[error("{origin}: `sandbox.writable` is refused: {reason}")]
    Policy {
        /// Source of the value: the file and the line.
        origin: Origin,
        /// Problem of the policy.
        reason: PolicyError,
    },
    /// The log's path is in use by a file that quackd did not create.
    #[error("the log {} cannot be written: {reason}; move it away", path.display())]
    Log {
        /// Path of the log.
        path: PathBuf,
        /// Description of the existing file.
        reason: NotOurFile,
    },
    /// The endpoint of web searches cannot be used.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The socket cannot be bound.
    #[error(transparent)]
    Socket(#[from] BindError),
    /// The socket from the service manager cannot be used.
    #[error(transparent)]
    Activation(#[from] ActivationError),
    /// Another system call failed.
    #[error("cannot {step}")]
    System {
        /// The failed step.
        step: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl StartError {
    /// Whether every further start fails in the same way until the user changes something. System errors may pass, such
    /// as a full disk or too many open files.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Home(error) => !matches!(error, HomeError::Io { .. }),
            Self::Config(_) | Self::Policy { .. } | Self::Log { .. } => true,
            Self::Egress(_) | Self::Activation(_) => true,
            Self::Socket(error) => matches!(error, BindError::Occupied { .. }),
            Self::System { .. } => false,
        }
    }
}

/// Adds the failed step to a system error.
pub(crate) fn system<T>(step: &'static str, result: std::io::Result<T>) -> Result<T, StartError> {
    result.map_err(|source| StartError::System { step, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_person_must_change_is_terminal() {
        let occupied = BindError::Occupied { path: "/s".into(), why: "it is not a socket" };
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let io = HomeError::Io { action: "open", path: "/s".into(), source: full };
        for (error, is_terminal) in [
            (StartError::from(HomeError::NoHome), true),
            (HomeError::NotOurs { path: "/s".into(), owner: 1, us: 2 }.into(), true),
            (HomeError::Foreign { path: "/s".into(), found: "x".into() }.into(), true),
            (StartError::Log { path: "/s".into(), reason: NotOurFile::Link }, true),
            (io.into(), false),
            (ConfigError::TooBig { path: "/s".into() }.into(), true),
            (EgressError::UnusableKey.into(), true),
            (occupied.into(), true),
            (BindError::InUse("/s".into()).into(), false),
            (system::<()>("x", Err(std::io::ErrorKind::Other.into())).unwrap_err(), false),
        ] {
            assert_eq!(error.is_terminal(), is_terminal, "{error}");
        }
    }
}
