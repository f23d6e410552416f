//! The configuration: one file, a few environment variables, and where each value comes from.
//!
//! Called by the supervisor at its start and by `quack config`; a worker reads none, it is told. The
//! environment is passed in as a function, so that nothing here depends on the process it runs in.
//!
//! - [`Config`] is the typed result, each value a [`Setting`] with its [`Origin`].
//! - [`keys`] is the one table: reading, `quack config show` and docs/configuration.md come from it.
//! - [`load_blocking`] reads at most one regular file of at most [`MAX_CONFIG_BYTES`].
//!
//! A value that cannot be used is an error and never replaced by the default: who wrote it meant it.

mod check;
mod config;
mod document;
mod entry;
mod error;
mod file;
mod key;
mod kind;
mod nearest;
mod setting;

pub use config::{
    Config, EnvironmentSettings, KeepSettings, LimitSettings, LogSettings, MetricsSettings,
    PiSettings, SandboxSettings, ToolSettings, WebSearchSettings, WorkerSettings, load_blocking,
};
pub use entry::Entry;
pub use error::ConfigError;
pub use file::{MAX_CONFIG_BYTES, locate};
pub use key::{Key, keys};
pub use setting::{Origin, Setting};
