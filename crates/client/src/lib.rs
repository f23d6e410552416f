//! Async client of the daemon, used by the subcommands of `quack` and by the tests.
//!
//! - [`Client`]: one connection; any number of requests in flight, matched by id.
//! - [`Connector`]: where a long-running client gets its connections from.
//! - [`Question`]: a question of the daemon to the user. [`OpenQuestions`]: those without an answer.
//! - [`ensure_daemon`]: makes sure that a daemon serves a state directory, and starts one if necessary.
//!
//! Needs a tokio runtime with I/O and time. The daemon is another process of the same user. It may have another
//! version, and it may be stopped or killed at any time. Therefore every wait has a timeout.

mod client;
mod connection;
mod connector;
mod directory;
mod error;
mod events;
mod open_questions;
mod question;
mod start;

pub use client::Client;
pub use connector::{ConnectError, Connecting, Connector, printable_name};
pub use directory::directory_in;
pub use error::ClientError;
pub use events::{Event, Events};
pub use open_questions::{OpenQuestion, OpenQuestions};
pub use question::{Answer, Question, QuestionKind, QuestionPermission};
pub use start::{StartError, Started, ensure_daemon};
