//! Ports of the network namespace at which programs without a proxy reach allowed hosts.

use quackd_protocol::network::{MAX_TRANSPARENT_PORTS, USUAL_PORTS};
use quackd_protocol::worker::Start;

/// Ports with a listener for programs that use no proxy; empty if these are not served.
pub(crate) fn host_ports(start: &Start) -> Vec<u16> {
    let Some(ports) = &start.sandbox.ports else { return Vec::new() };
    let more = ports.iter().copied().filter(|port| !USUAL_PORTS.contains(port));
    USUAL_PORTS.into_iter().chain(more).take(MAX_TRANSPARENT_PORTS).collect()
}
