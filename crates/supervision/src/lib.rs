//! Child specifications, restart window, backoff, heartbeat and the worker state machine as pure data.
//!
//! Called by the supervisor's worker handles: events go in, decisions come out, and the caller does
//! what they say. Time is always an argument and always an `Instant`, so a jump of the wall clock
//! cannot matter and a test covers a minute in no time.

mod backoff;
mod cause;
mod heartbeat;
mod spec;
mod vocabulary;
mod window;
mod worker;

pub use backoff::Backoff;
pub use cause::{Cause, EXIT_TERMINAL, Exit};
pub use heartbeat::{Action, Heartbeat, HeartbeatSpec};
pub use spec::{ChildSpec, PI_WORKER, Restart, SESSION_WORKER};
pub use vocabulary::{AfterExit, Demand, Demander, Hello, Load, Order, State};
pub use window::RestartWindow;
pub use worker::Worker;
