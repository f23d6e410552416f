//! Limits that all sessions share: worker slots, command slots and disk space for spill files; and the status of each
//! session, from which the eviction chooses.

pub(crate) mod command_slots;
pub(crate) mod session_status;
pub(crate) mod spill_quota;
pub(crate) mod worker_pool;
