//! Limits of the network of commands: rules, forwards, servers and the log of connections.

/// Most rules of hosts in one layer of a policy.
pub const MAX_HOST_RULES: usize = 256;

/// Most forwards of one session.
pub const MAX_FORWARDS_PER_SESSION: usize = 8;

/// Most forwards of all sessions.
pub const MAX_FORWARDS: usize = 64;

/// Most servers of one session that are listed.
pub const MAX_SERVERS: usize = 16;

/// Requests for hosts that the daemon remembers for one session.
pub const MAX_NETWORK_LOG: usize = 1000;

/// Size of one file of `network.jsonl`. One older file is kept.
pub const NETWORK_FILE_BYTES: u64 = 8 * 1024 * 1024;
