//! Sends the daemon's state to the service manager (sd_notify(3)). Used by the supervisor.
//!
//! Sends datagrams and never blocks. A message is lost if the manager's queue is full or the manager is gone.

use crate::Variable;
use crate::platform::abstract_address;
use quackd_protocol::foreign_text::message_line;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Maximum length of a status text, in bytes.
const MAX_STATUS: usize = 512;

/// Socket and address of the service manager.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Notifier {
    /// Creates the notifier; `None` if `NOTIFY_SOCKET` is not set.
    ///
    /// # Errors
    /// The address is invalid, or no descriptor is left.
    pub fn from_variables(variable: Variable<'_>) -> io::Result<Option<Self>> {
        let Some(path) = variable("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let address = address(&path)?;
        let socket = UnixDatagram::unbound()?;
        // The daemon must not wait for a manager whose queue is full.
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, address }))
    }

    /// Reports that the daemon is ready.
    pub fn ready(&self) {
        self.send(&format!("READY=1\nMAINPID={}", std::process::id()));
    }

    /// Resets the watchdog timer.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports that the daemon is shutting down.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sets the status text, which `systemctl status` shows.
    pub fn status(&self, text: &str) {
        let text = message_line(text, MAX_STATUS);
        let text = text.get(..text.floor_char_boundary(MAX_STATUS)).unwrap_or_default();
        self.send(&format!("STATUS={text}"));
    }

    fn send(&self, text: &str) {
        // A failed notification cannot be reported.
        self.socket.send_to_addr(text.as_bytes(), &self.address).ok();
    }
}

/// `@` starts an abstract address, which has no file.
fn address(path: &OsString) -> io::Result<SocketAddr> {
    if let Some(name) = path.as_bytes().strip_prefix(b"@") {
        return abstract_address(name);
    }
    if !path.as_bytes().starts_with(b"/") {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    SocketAddr::from_pathname(path)
}

/// Returns the watchdog timeout of this process; `None` without a watchdog.
#[must_use]
pub fn watchdog_interval(variable: Variable<'_>) -> Option<Duration> {
    let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
    let is_for_us = match variable("WATCHDOG_PID") {
        Some(_) => number("WATCHDOG_PID") == Some(u64::from(std::process::id())),
        None => true,
    };
    number("WATCHDOG_USEC")
        .filter(|microseconds| is_for_us && 0 < *microseconds)
        .map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 2048];
        let n = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    }

    fn notifier(path: &str) -> io::Result<Option<Notifier>> {
        Notifier::from_variables(&|name| (name == "NOTIFY_SOCKET").then(|| path.into()))
    }

    #[test]
    fn the_manager_hears_what_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(path.to_str().unwrap()).unwrap().unwrap();
        notifier.ready();
        assert_eq!(received(&manager), format!("READY=1\nMAINPID={}", std::process::id()));
        notifier.status("2 sessions\nREADY=1");
        assert_eq!(received(&manager), "STATUS=2 sessions READY=1");
        notifier.status(&"é".repeat(MAX_STATUS));
        assert_eq!(received(&manager).len(), "STATUS=".len() + MAX_STATUS);
        notifier.alive();
        notifier.stopping();
        assert_eq!([received(&manager), received(&manager)], ["WATCHDOG=1", "STOPPING=1"]);
    }

    #[test]
    fn a_manager_that_does_not_read_or_is_gone_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(path.to_str().unwrap()).unwrap().unwrap();
        for _ in 0..10_000 {
            notifier.alive();
        }
        drop(manager);
        notifier.alive();
    }

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let of = |microseconds: &str, pid: Option<u32>| {
            watchdog_interval(&|name| match name {
                "WATCHDOG_USEC" => Some(microseconds.into()),
                "WATCHDOG_PID" => pid.map(|pid| pid.to_string().into()),
                _ => None,
            })
        };
        let own = std::process::id();
        assert_eq!(of("30000000", Some(own)), Some(Duration::from_secs(30)));
        assert_eq!(of("500000", None), Some(Duration::from_millis(500)));
        for (microseconds, pid) in
            [("30000000", Some(own + 1)), ("0", None), ("", None), ("-1", None)]
        {
            assert_eq!(of(microseconds, pid), None, "{microseconds} {pid:?}");
        }
    }
}
