//! Supervision as pure data: child specifications, restart window, backoff, heartbeat and the life
//! cycle of a child.
//!
//! [`Budget`] bounds the memory of all clients together.
//!
//! Called by the supervisor, which passes in events and executes the returned decisions. Time
//! is always an argument and always an `Instant`. So steps of the wall clock have no effect, and a test of
//! one minute needs no real time.

mod backoff;
mod budget;
mod cause;
mod heartbeat;
mod lifecycle;
mod spec;
mod vocabulary;
mod window;

pub use backoff::Backoff;
pub use budget::{Budget, FREE_BYTES, Share};
pub use cause::{Cause, CauseKind, EXIT_TERMINAL, Exit};
pub use heartbeat::{Action, Heartbeat, HeartbeatSpec};
pub use lifecycle::Lifecycle;
pub use spec::{
    ACTORS_THREAD, AGENT, CREDENTIALS_WORKER, ChildSpec, EGRESS_THREAD, ENVIRONMENT_WORKER,
    FAR_ERRAND, Form, ISOLATE_WORKER, METRICS_THREAD, NETWORK_PROXY, REMOTE_THREAD,
    REPOSITORY_CLEANER, ROUTER, Restart, SESSION_WORKER, STATE_RECORDER, STORE_THREAD,
    SYSTEM_PROBE, TOOL_REGISTRIES, TREE, WORKER_HEARTBEAT,
};
pub use vocabulary::{AfterExit, Demand, Demander, Hello, Load, Order, State};
pub use window::RestartWindow;
