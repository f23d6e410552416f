//! The configuration: one file, a few environment variables, and the origin of each value.
//!
//! Read by the supervisor at its start and by `quack config`. Workers read no configuration: the supervisor sends them
//! their settings. The environment is passed in as a function, so that the crate does not depend on its process.
//!
//! - [`Config`] is the typed result, each value a [`Setting`] with its [`Origin`].
//! - [`keys`] is the table of all keys: reading, `quack config show` and docs/configuration.md use it.
//! - [`load_blocking`] reads at most one regular file of at most [`MAX_CONFIG_BYTES`].
//!
//! An invalid value is an error and is never replaced by the default, because the user set it on purpose.

mod accessor;
mod choices;
mod config;
mod credentials;
mod definition;
mod document;
mod engines;
mod entries;
mod entry;
mod error;
mod far;
mod file;
mod guest_agents;
mod isolated;
mod key;
mod load;
mod mcp_servers;
mod remote;
mod run;
mod secret;
mod setting;
mod suggest;
mod untrusted;
mod validate;
mod value_kind;

pub use config::{
    AgentSettings, Config, EngineChoice, EnvironmentSettings, KeepSettings, LimitSettings,
    LogSettings, MetricsSettings, ModelSettings, PiSettings, PiStart, SandboxSettings,
    ToolSettings, UpstreamChoice, WebSearchSettings, WorkerSettings,
};
pub use credentials::{CredentialSettings, SSH_AGENT_AUTO};
pub use definition::Key;
pub use entry::Entry;
pub use error::{ConfigError, MAX_CONFIG_BYTES};
pub use far::FarSettings;
pub use file::locate;
pub use isolated::{CheckpointChoice, IsolatedSettings};
pub use key::keys;
pub use load::{load_blocking, load_untrusted_blocking};
pub use remote::{RemoteApprovals, RemoteSettings};
pub use run::{ClipboardChoice, GuestAgentSettings, LoginChoice, RunNetwork, RunSettings};
pub use secret::Secret;
pub use setting::{Dollars, ForwardSettings, Origin, Setting};
