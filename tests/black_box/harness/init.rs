//! A fake service manager. It owns the socket, receives the daemon's notifications, enforces the
//! watchdog, pauses before a restart, and kills processes that do not exit. It behaves like systemd
//! for the unit that `quack service install` writes, with shorter times.

use super::{Daemon, PATIENCE, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Watchdog timeout. The real one is 30 s. The daemon speaks twice in it, also on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(10);

/// Pause before a restart. The real one is 1 s.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// Maximum wait for one datagram.
const TURN: Duration = Duration::from_millis(20);

/// State of the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Starting,
    /// The daemon reported readiness.
    Ready,
    /// The daemon restarts after the pause.
    Pausing,
    /// The daemon exited and is not restarted.
    Ended,
}

/// The service manager, with one service.
pub(crate) struct Init {
    pub(crate) world: Daemon,
    /// Path of the daemon's program; a test may replace the file.
    pub(crate) program: PathBuf,
    notify: UnixDatagram,
    listener: UnixListener,
    child: Option<Child>,
    pub(crate) unit: Unit,
    /// Number of starts so far.
    pub(crate) starts: u32,
    /// Exit status of each daemon.
    pub(crate) ends: Vec<ExitStatus>,
    /// Number of daemons that the watchdog killed.
    pub(crate) hung: u32,
    /// Last reported status.
    pub(crate) status: String,
    pub(crate) stopping: bool,
    heard: Instant,
    paused: Instant,
}

impl Init {
    /// Creates a manager with a socket, which has started nothing.
    pub(crate) fn new() -> Self {
        let world = Daemon::absent();
        std::fs::create_dir(world.app()).expect("a state directory");
        let listener = UnixListener::bind(world.socket()).expect("the service's socket");
        let notify = UnixDatagram::bind(world.home().join("notify")).expect("a socket to hear by");
        sockopt::set_socket_passcred(&notify, true).expect("enable credentials");
        notify.set_read_timeout(Some(TURN)).expect("a time limit");
        let program = PathBuf::from(world.command(&[]).get_program());
        let now = Instant::now();
        Self {
            world,
            program,
            notify,
            listener,
            child: None,
            unit: Unit::Ended,
            starts: 0,
            ends: Vec::new(),
            hung: 0,
            status: String::new(),
            stopping: false,
            heard: now,
            paused: now,
        }
    }

    /// Creates a manager whose service is ready.
    #[track_caller]
    pub(crate) fn ready() -> Self {
        let mut init = Self::new();
        init.start();
        init.until("the service to be ready", |init| (init.unit == Unit::Ready).then_some(()));
        init
    }

    /// Process id of the daemon.
    #[track_caller]
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().expect("a daemon").id()).expect("a pid")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("signal the daemon");
    }

    /// Starts the daemon with the socket as descriptor 3, as systemd does.
    pub(crate) fn start(&mut self) {
        let template = self.world.command(&[]);
        let mut command = program("/bin/bash");
        command.env_clear().current_dir("/");
        for (name, value) in template.get_envs() {
            if let Some(value) = value.filter(|_| name != "SHLVL") {
                command.env(name, value);
            }
        }
        let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$ WATCHDOG_PID=$$; unset SHLVL; \
                      exec \"$0\" daemon --service systemd";
        command.args(["-c", script]).arg(&self.program);
        command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "quackd");
        command.env("NOTIFY_SOCKET", self.world.home().join("notify"));
        command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        let socket = OwnedFd::from(self.listener.try_clone().expect("clone the socket"));
        let child = command.stdin(Stdio::from(socket)).stdout(Stdio::null()).spawn();
        self.child = Some(child.expect("start the daemon"));
        self.unit = Unit::Starting;
        self.starts += 1;
        self.stopping = false;
        self.heard = Instant::now();
    }

    /// Acts as the service manager until `fact` returns a value.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, mut fact: impl FnMut(&Self) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            self.turn();
            if let Some(value) = fact(self) {
                return value;
            }
            assert!(begun.elapsed() < PATIENCE, "timed out waiting for {what}; {:?}", self.unit);
        }
    }

    /// Runs a subcommand to its end while the manager keeps working.
    #[track_caller]
    pub(crate) fn quack(&mut self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.world.command(args);
        let out = self.world.home().join("out");
        let err = self.world.home().join("err");
        let file = |path: &Path| Stdio::from(std::fs::File::create(path).expect("a file"));
        let child = command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err)).spawn();
        let mut child = child.expect("run quack");
        let mut ended = None;
        self.until("a verb to end", |_| {
            ended = child.try_wait().expect("wait");
            ended
        });
        let read = |path: &Path| std::fs::read_to_string(path).expect("read");
        (ended.and_then(|status| status.code()), read(&out), read(&err))
    }

    /// Stops the daemon, and kills it after `limit`. The manager does not restart it.
    #[track_caller]
    pub(crate) fn stop(&mut self, limit: Duration) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let begun = Instant::now();
        let child = self.child.take().expect("a daemon");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        let mut child = child;
        loop {
            self.hear();
            if let Some(status) = child.try_wait().expect("wait") {
                self.unit = Unit::Ended;
                self.ends.push(status);
                return status;
            }
            if limit < begun.elapsed() {
                kill(pid, Signal::SIGKILL).expect("kill the daemon");
            }
        }
    }

    fn turn(&mut self) {
        self.hear();
        if let Some(child) = &mut self.child {
            if let Some(status) = child.try_wait().expect("wait") {
                self.child = None;
                self.ended(status);
            } else if self.unit == Unit::Ready && WATCHDOG < self.heard.elapsed() {
                self.hung += 1;
                self.heard = Instant::now();
                self.signal(Signal::SIGKILL);
            }
        } else if self.unit == Unit::Pausing && RESTART_PAUSE < self.paused.elapsed() {
            self.start();
        }
    }

    /// `Restart=on-failure`, `RestartForceExitStatus=75`, `RestartPreventExitStatus=0 78`.
    fn ended(&mut self, status: ExitStatus) {
        self.ends.push(status);
        self.paused = Instant::now();
        self.unit = match (status.code(), status.signal()) {
            (Some(0 | 78), _) => Unit::Ended,
            _ => Unit::Pausing,
        };
    }

    /// Receives one datagram within [`TURN`]. Datagrams of other processes are ignored.
    fn hear(&mut self) {
        let mut bytes = [0; 2048];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let Ok(got) = recvmsg(&self.notify, &mut slices, &mut ancillary, RecvFlags::empty()) else {
            return;
        };
        let n = got.bytes;
        let speaker = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(who) => Some(who.pid.as_raw_nonzero().get()),
            _ => None,
        });
        let main = self.child.as_ref().map(|child| i32::try_from(child.id()).expect("a pid"));
        assert!(speaker.is_some(), "datagram without credentials");
        if main.is_some() && speaker != main {
            return;
        }
        let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
        for line in text.lines() {
            match line.split_once('=').expect("a name and a value") {
                ("READY", "1") => self.unit = Unit::Ready,
                ("WATCHDOG", "1") => {}
                ("STOPPING", "1") => self.stopping = true,
                ("STATUS", status) => self.status = status.to_owned(),
                ("MAINPID", pid) => assert_eq!(pid, speaker.unwrap_or(0).to_string()),
                other => panic!("not understood: {other:?}"),
            }
        }
        self.heard = Instant::now();
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        // `Daemon` would treat an existing socket as a running daemon's.
        drop(std::fs::remove_file(self.world.socket()));
    }
}
