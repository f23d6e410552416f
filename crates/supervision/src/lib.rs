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
pub use cause::{Cause, CauseKind, EXIT_TERMINAL, Exit};
pub use heartbeat::{Action, Heartbeat, HeartbeatSpec};
pub use spec::{
    ACTORS_THREAD, ChildSpec, EGRESS_THREAD, ENVIRONMENT_WORKER, Form, METRICS_THREAD, PI_WORKER,
    REMOTE_THREAD, REPOSITORY_CLEANER, Restart, SESSION_WORKER, STORE_THREAD, SYSTEM_PROBE, TREE,
    WORKER_HEARTBEAT,
};
pub use vocabulary::{AfterExit, Demand, Demander, Hello, Load, Order, State};
pub use window::RestartWindow;
pub use worker::Worker;
