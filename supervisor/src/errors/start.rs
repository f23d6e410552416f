//! Why the daemon did not start, and whether another start can help. Made by [`crate::service::daemon`]; the command
//! line shows it and ends with a code that a service manager understands.

use quackd_config::{ConfigError, Origin};
use quackd_egress::EgressError;
use quackd_home::HomeError;
use quackd_home::own_file::NotOurFile;
use quackd_ipc::listener::BindError;
use quackd_protocol::policy::PolicyError;
use quackd_service::ActivationError;
use std::path::PathBuf;

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The state directory cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration asks for a sandbox policy that must not be in force.
    // The reason is part of the text, as with the other errors of the configuration.
    #[error("{origin}: `sandbox.writable` is refused: {reason}")]
    Policy {
        /// Where the value comes from: the file and the line.
        origin: Origin,
        /// What is wrong with it.
        reason: PolicyError,
    },
    /// Something that is no file of ours has the name of the log.
    #[error("the log {} cannot be written: {reason}; move it away", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// What stands there.
        reason: NotOurFile,
    },
    /// Nor where web searches shall go.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The socket cannot be bound.
    #[error(transparent)]
    Socket(#[from] BindError),
    /// The socket that the service manager gave cannot be used.
    #[error(transparent)]
    Activation(#[from] ActivationError),
    /// The system refused something else.
    #[error("cannot {step}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The refusal.
        source: std::io::Error,
    },
}

impl StartError {
    /// Whether every other start ends in the same way until a person changes something. What the system
    /// refused may pass: descriptors that were used up, a disk that was full.
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

/// A refusal of the system's, with what was tried.
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
