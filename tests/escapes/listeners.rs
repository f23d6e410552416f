//! Sockets that a confined worker must not reach: a TCP, a UDP, a path-name and an abstract socket
//! of another process. Each records its callers.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which the thread checks for its stop flag, in milliseconds.
const LOOK_MS: u16 = 50;

/// Maximum wait for a caller's request.
const PATIENCE: Duration = Duration::from_millis(300);

const NAMES: [&str; 4] = ["tcp", "unix", "abstract", "udp"];

/// Sockets and the thread that serves them until this value is dropped.
pub(super) struct Listeners {
    pub(super) tcp_port: u16,
    pub(super) udp_port: u16,
    hits: Arc<[AtomicBool; 4]>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Sockets {
    tcp: TcpListener,
    unix: UnixListener,
    by_name: UnixListener,
    udp: UdpSocket,
}

impl Listeners {
    /// Binds all sockets. `socket` is a path, `name` a name in the abstract name space.
    pub(super) fn start(socket: &Path, name: &str) -> Self {
        let address = SocketAddr::from_abstract_name(name).expect("an abstract name");
        let sockets = Sockets {
            tcp: TcpListener::bind("127.0.0.1:0").expect("a TCP port"),
            unix: UnixListener::bind(socket).expect("a socket"),
            by_name: UnixListener::bind_addr(&address).expect("an abstract socket"),
            udp: UdpSocket::bind("127.0.0.1:0").expect("a UDP port"),
        };
        let tcp_port = sockets.tcp.local_addr().expect("an address").port();
        let udp_port = sockets.udp.local_addr().expect("an address").port();
        let (hits, is_over) = (Arc::<[AtomicBool; 4]>::default(), Arc::<AtomicBool>::default());
        let (noticed, over) = (Arc::clone(&hits), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || sockets.serve(&noticed, &over));
        Self { tcp_port, udp_port, hits, is_over, thread: Some(thread) }
    }

    /// Returns true if a process connected to this socket, or to any for `any`.
    pub(super) fn is_hit(&self, via: &str) -> bool {
        assert!(via == "any" || NAMES.contains(&via), "no socket {via}");
        let hits = NAMES.iter().zip(&*self.hits);
        hits.filter(|(name, _)| via == "any" || via == **name)
            .any(|(_, hit)| hit.load(Ordering::SeqCst))
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Sockets {
    fn serve(&self, hits: &[AtomicBool; 4], is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            let all = [self.tcp.as_fd(), self.unix.as_fd(), self.by_name.as_fd(), self.udp.as_fd()];
            let mut fds = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            if poll(&mut fds, PollTimeout::from(LOOK_MS)).is_err() {
                continue;
            }
            let is_ready = fds.map(|fd| fd.any().unwrap_or(false));
            for (n, hit) in hits.iter().enumerate().filter(|(n, _)| is_ready[*n]) {
                hit.store(true, Ordering::SeqCst);
                // The connection is recorded; its outcome does not matter.
                drop(self.answer(n));
            }
        }
    }

    fn answer(&self, n: usize) -> std::io::Result<()> {
        if n == 0 {
            let (stream, _) = self.tcp.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            return converse(stream);
        }
        if n == 3 {
            return self.udp.recv_from(&mut [0; 100]).map(|_| ());
        }
        let (stream, _) = if n == 1 { self.unix.accept()? } else { self.by_name.accept()? };
        stream.set_read_timeout(Some(PATIENCE))?;
        converse(stream)
    }
}

fn converse(mut stream: impl Read + Write) -> std::io::Result<()> {
    // One read is enough: a request arrives in one piece, and a silent caller gets the answer too.
    drop(stream.read(&mut [0; 1000]));
    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhi")
}
