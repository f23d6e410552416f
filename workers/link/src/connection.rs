//! One link: moves bytes between the local channel and the other side, until one of them ends or the link is lost.

use crate::local::Local;
use crate::packet::{FarExit, Packet, Violation};
use bytes::BytesMut;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Silence after which a keep-alive is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Silence of the other side after which the link is lost.
const SILENCE: Duration = Duration::from_secs(10);

/// Received bytes, and the time, after which they are acknowledged.
const ACKNOWLEDGE_BYTES: u64 = 256 * 1024;
const ACKNOWLEDGE_TIME: Duration = Duration::from_millis(100);

/// Bytes in packets that wait for the other side to read, from which on no data is added.
const MAX_OUTPUT: usize = 128 * 1024;

/// Free buffer for one read, in bytes.
const READ: usize = 64 * 1024;

/// The end of [`Connection::carry`].
#[derive(Debug)]
pub(crate) enum Event {
    /// The far worker has exited, and all of its bytes are on the local channel.
    Ended(FarExit),
    /// The other side ends the worker, or has confirmed its end.
    Left,
    /// The local channel was closed.
    LocalEnded,
    /// The link is lost, for this reason.
    Lost(String),
    /// The link is lost, and must not be resumed.
    Broken(Violation),
}

/// A link after its handshake.
pub(crate) struct Connection {
    reader: Box<dyn AsyncRead + Unpin>,
    writer: Box<dyn AsyncWrite + Unpin>,
    input: BytesMut,
    output: BytesMut,
    /// Time of the last byte from the other side, and of the last byte to it.
    heard: Instant,
    spoke: Instant,
    /// Time of the next acknowledgement.
    acknowledge_at: Option<Instant>,
    has_said_end: bool,
    /// Whether `output` or the writer may have bytes. The standard output keeps bytes until a line ends.
    has_output: bool,
}

impl Connection {
    /// Begins a link. `input` has bytes that came with the handshake.
    pub(crate) fn new(
        reader: impl AsyncRead + Unpin + 'static,
        writer: impl AsyncWrite + Unpin + 'static,
        input: BytesMut,
    ) -> Self {
        let now = Instant::now();
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            input,
            output: BytesMut::new(),
            heard: now,
            spoke: now,
            acknowledge_at: None,
            has_said_end: false,
            has_output: false,
        }
    }

    /// Moves bytes. With the exit of the worker, sends it after the last byte, and waits for [`Packet::Leave`]. Cancel-safe.
    pub(crate) async fn carry(&mut self, local: &mut Local, exit: Option<FarExit>) -> Event {
        loop {
            match self.take_packets(local) {
                Ok(None) => {}
                Ok(Some(event)) => return event,
                Err(violation) => return Event::Broken(violation),
            }
            if local.has_ended() && exit.is_none() {
                return Event::LocalEnded;
            }
            self.put_packets(local, exit);
            self.has_output |= !self.output.is_empty();

            self.reserve();
            let due = self.due();
            tokio::select! {
                // Input is read before the silence is noticed: this process may have been stopped for longer.
                biased;
                written = write(&mut self.writer, &mut self.output), if self.has_output => match written {
                    Ok(has_output) => (self.spoke, self.has_output) = (Instant::now(), has_output),
                    Err(error) => return Event::Lost(error.to_string()),
                },
                // Before the reading, which a far side could keep busy. The window bounds it.
                () = local.step() => {}
                read = self.reader.read_buf(&mut self.input) => match read {
                    Ok(0) => return Event::Lost("the connection was closed".to_owned()),
                    Ok(_) => self.heard = Instant::now(),
                    Err(error) => return Event::Lost(error.to_string()),
                },
                () = sleep_until(due) => {
                    if self.heard + SILENCE <= Instant::now() {
                        let seconds = SILENCE.as_secs();
                        return Event::Lost(format!("nothing was received for {seconds} s"));
                    }
                }
            }
        }
    }

    /// Handles the packets that have arrived.
    fn take_packets(&mut self, local: &mut Local) -> Result<Option<Event>, Violation> {
        while let Some(packet) = Packet::take(&mut self.input)? {
            match packet {
                Packet::Data(data) => local.take(&data)?,
                Packet::Received(total) => local.window.acknowledge(total)?,
                Packet::KeepAlive => {}
                Packet::Ended(exit) => return Ok(Some(Event::Ended(exit))),
                Packet::Leave => return Ok(Some(Event::Left)),
            }
        }
        Ok(None)
    }

    /// Adds the packets that are due.
    fn put_packets(&mut self, local: &mut Local, exit: Option<FarExit>) {
        let now = Instant::now();
        while self.output.len() < MAX_OUTPUT {
            let Some(data) = local.window.next_data() else { break };
            Packet::Data(data).put(&mut self.output);
        }

        let unannounced = local.window.unannounced();
        if unannounced == 0 {
            self.acknowledge_at = None;
        } else if self.output.len() < MAX_OUTPUT {
            let at = *self.acknowledge_at.get_or_insert(now + ACKNOWLEDGE_TIME);
            if ACKNOWLEDGE_BYTES <= unannounced || at <= now {
                Packet::Received(local.window.announce()).put(&mut self.output);
                self.acknowledge_at = None;
            }
        } else {
            // The next write makes room.
            self.acknowledge_at = None;
        }

        if let Some(exit) = exit
            && !self.has_said_end
            && local.has_ended()
            && local.window.is_all_sent()
        {
            Packet::Ended(exit).put(&mut self.output);
            self.has_said_end = true;
        }
        if self.output.is_empty() && self.spoke + KEEP_ALIVE <= now {
            Packet::KeepAlive.put(&mut self.output);
        }
    }

    /// Time of the next step without input and output.
    fn due(&self) -> Instant {
        let keep_alive = self.output.is_empty().then(|| self.spoke + KEEP_ALIVE);
        let due = [Some(self.heard + SILENCE), keep_alive, self.acknowledge_at];
        due.into_iter().flatten().min().unwrap_or(self.heard)
    }

    fn reserve(&mut self) {
        if self.input.capacity() - self.input.len() < READ / 4 {
            self.input.reserve(READ);
        }
    }

    /// Returns the next packet, for the time before [`Connection::carry`].
    pub(crate) async fn next(&mut self) -> io::Result<Packet> {
        loop {
            if let Some(packet) = Packet::take(&mut self.input).map_err(io::Error::other)? {
                return Ok(packet);
            }
            self.reserve();
            if self.reader.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.heard = Instant::now();
        }
    }

    /// Sends keep-alives while this side prepares something and reads nothing. Returns when the link is lost. Cancel-safe.
    pub(crate) async fn keep_alive(&mut self) {
        loop {
            sleep(KEEP_ALIVE).await;
            Packet::KeepAlive.put(&mut self.output);
            let sent = async {
                self.writer.write_all_buf(&mut self.output).await?;
                self.writer.flush().await
            };
            if sent.await.is_err() {
                return;
            }
            self.spoke = Instant::now();
        }
    }

    /// The other side was not read until now, so its silence begins now.
    pub(crate) fn listen_anew(&mut self) {
        self.heard = Instant::now();
    }

    /// Sends [`Packet::Leave`], for at most `limit`. The end of the connection has the same effect, later.
    pub(crate) async fn leave(mut self, limit: Duration) {
        Packet::Leave.put(&mut self.output);
        let sent = async {
            self.writer.write_all_buf(&mut self.output).await?;
            self.writer.shutdown().await
        };
        if let Ok(Err(error)) = timeout(limit, sent).await {
            quackd_process::complain(&format!("cannot end the far worker: {error}"));
        }
    }
}

/// Writes some of the packets, or passes on what the writer keeps. Returns whether something may be left. Cancel-safe.
async fn write(mut writer: impl AsyncWrite + Unpin, output: &mut BytesMut) -> io::Result<bool> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(false);
    }
    match writer.write_buf(output).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;
    use tokio::net::UnixStream;

    /// A local channel, its other end, and a connection with its other end.
    fn ends() -> (Local, UnixStream, Connection, Connection) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (near, far) = duplex(1000);
        let connection = |end| {
            let (reader, writer) = tokio::io::split(end);
            Connection::new(reader, writer, BytesMut::new())
        };
        (Local::to_worker(ours), theirs, connection(near), connection(far))
    }

    #[tokio::test]
    async fn bytes_cross_two_links_and_the_exit_follows_the_last_one() {
        let (mut here, mut supervisor, mut near, mut far) = ends();
        let (worker, mut there) = UnixStream::pair().unwrap();
        let mut worker = Local::to_worker(worker);

        let to_worker = vec![1; 3_000_000];
        let to_supervisor = vec![2; 5_000_000];
        let near_end = async {
            let event = near.carry(&mut here, None).await;
            here.flush(Duration::from_secs(60)).await;
            near.leave(Duration::from_secs(60)).await;
            drop(here);
            event
        };
        let far_end = async {
            let event = far.carry(&mut worker, None).await;
            assert!(matches!(event, Event::LocalEnded), "{event:?}");
            far.carry(&mut worker, Some(FarExit::Signal(9))).await
        };
        let work = async {
            let mut got = vec![0; to_worker.len()];
            there.read_exact(&mut got).await.unwrap();
            assert!(got == to_worker);
            there.write_all(&to_supervisor).await.unwrap();
            drop(there);
        };
        let supervise = async {
            supervisor.write_all(&to_worker).await.unwrap();
            let mut got = Vec::new();
            supervisor.read_to_end(&mut got).await.unwrap();
            assert!(got == to_supervisor);
        };
        let (near_event, far_event, (), ()) = tokio::join!(near_end, far_end, work, supervise);
        assert!(matches!(near_event, Event::Ended(FarExit::Signal(9))), "{near_event:?}");
        assert!(matches!(far_event, Event::Left), "{far_event:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_link_is_lost_and_keep_alives_prevent_that() {
        let (mut local, _supervisor, mut near, mut far) = ends();
        let begun = Instant::now();
        let lasted = tokio::select! {
            event = near.carry(&mut local, None) => panic!("{event:?}"),
            () = far.keep_alive() => panic!(),
            () = sleep(Duration::from_secs(60)) => begun.elapsed(),
        };
        assert_eq!(lasted.as_secs(), 60);
        let Event::Lost(reason) = near.carry(&mut local, None).await else { panic!() };
        assert_eq!(reason, "nothing was received for 10 s");
        drop(far);
        assert!(matches!(near.carry(&mut local, None).await, Event::Lost(_)));
    }
}
