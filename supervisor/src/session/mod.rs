//! The processes of one session: its worker with the pending calls, and its Pi.

pub(crate) mod pending_calls;
pub(crate) mod pi;
pub(crate) mod worker;
