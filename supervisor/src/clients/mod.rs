//! Ways into the daemon: the Unix socket, remote control, and the metrics endpoint.

pub(crate) mod connection;
pub(crate) mod listener;
pub(crate) mod metrics_endpoint;
pub(crate) mod remote;
