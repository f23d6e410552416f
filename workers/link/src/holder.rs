//! The socket by which a lost link is resumed: the process that has the worker listens, and `quack worker --stdio --resume`
//! connects it to the new link. A new worker of the same session ends the earlier one by it.

use crate::connection::Connection;
use crate::far_files::FarFiles;
use crate::handshake::{Hello, Ready, read_line};
use bytes::BytesMut;
use quackd_ipc::listener::peer_is_owner;
use quackd_process::complain;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

/// Line of a new worker of the session.
const END: &str = "end";

/// Time for the lines of a caller. The present link waits during that time.
const CALLER_TIME: Duration = Duration::from_secs(5);

/// Time for an earlier worker of the session to end.
const END_TIME: Duration = Duration::from_secs(8);

/// Pause after a failed accept, for example without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The listening socket.
#[derive(Debug)]
pub(crate) struct Holder {
    /// `None` if the path is too long for a socket.
    listener: Option<UnixListener>,
}

/// A process that has connected.
pub(crate) enum Caller {
    /// The link process, over a new link.
    Resumes {
        connection: Connection,
        /// Bytes of the stream that it has received.
        received: u64,
    },
    /// A new worker of the session. It waits until the connection is closed.
    NewOwner(UnixStream),
    /// Neither.
    Other,
}

impl Holder {
    /// Ends an earlier worker of the session, and listens. `must_listen`: links will be resumed.
    ///
    /// # Errors
    /// The earlier worker does not end, or the socket cannot be bound.
    pub(crate) async fn take_over(files: &FarFiles, must_listen: bool) -> io::Result<Self> {
        let path = files.socket();
        if let Ok(earlier) = UnixStream::connect(&path).await {
            let ended = timeout(END_TIME, end(earlier)).await;
            ended
                .map_err(|_| io::Error::other("an earlier worker of this session does not end"))?;
        }

        // No process listens at it any longer.
        std::fs::remove_file(&path).ok();
        match UnixListener::bind(&path) {
            Ok(listener) => Ok(Self { listener: Some(listener) }),
            // The path is longer than a socket's may be.
            Err(error) if must_listen && error.kind() == io::ErrorKind::InvalidInput => {
                let path = path.display();
                Err(io::Error::other(format!(
                    "{path} is too long for a socket: set XDG_STATE_HOME there to a shorter directory, or far.resume_grace_s \
                     to 0 here"
                )))
            }
            Err(error) if must_listen => Err(error),
            Err(error) => {
                complain(&format!("cannot listen at {}: {error}", path.display()));
                Ok(Self { listener: None })
            }
        }
    }

    /// Accepts the next process of this user. Cancel-safe.
    pub(crate) async fn accept(&self) -> UnixStream {
        let Some(listener) = &self.listener else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok((stream, _)) if peer_is_owner(&stream).unwrap_or(false) => return stream,
                Ok(_other_user) => {}
                Err(_exhausted) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

/// Asks the earlier process to end, and waits until it has.
async fn end(mut earlier: UnixStream) {
    let asked = earlier.write_all(format!("{END}\n").as_bytes()).await;
    let mut chunk = vec![0; 1024];
    while asked.is_ok() && matches!(earlier.read(&mut chunk).await, Ok(1..)) {}
}

/// Does the handshake with a caller. `own` began the session; `received` bytes of the stream have arrived.
pub(crate) async fn greet(mut stream: UnixStream, own: &Hello, received: u64) -> Caller {
    let mut input = BytesMut::new();
    let line = timeout(CALLER_TIME, async {
        stream.write_all(Ready::own(received).line()?.as_bytes()).await?;
        read_line(&mut stream, &mut input).await
    });
    let Ok(Ok(line)) = line.await else { return Caller::Other };
    if line == END {
        return Caller::NewOwner(stream);
    }

    let Ok(hello) = serde_json::from_str::<Hello>(&line) else { return Caller::Other };
    let is_same =
        (hello.proto, &hello.session, &hello.token) == (own.proto, &own.session, &own.token);
    if own.grace_ms == 0 || !is_same {
        return Caller::Other;
    }
    let (reader, writer) = stream.into_split();
    Caller::Resumes { connection: Connection::new(reader, writer, input), received: hello.received }
}

/// Connects a new link to the process that has the session's worker, until one of them ends.
///
/// # Errors
/// No process has the worker.
pub(crate) async fn relay(files: &FarFiles) -> io::Result<()> {
    let stream = UnixStream::connect(files.socket()).await.map_err(|error| {
        io::Error::other(format!("the session's worker does not run any longer: {error}"))
    })?;
    let (mut from, mut to) = stream.into_split();
    let (mut stdin, mut stdout) = (tokio::io::stdin(), tokio::io::stdout());
    // The other process notices how a link ends.
    tokio::select! {
        _ended = tokio::io::copy(&mut stdin, &mut to) => Ok(()),
        _ended = tokio::io::copy(&mut from, &mut stdout) => stdout.flush().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::PROTO;
    use quackd_testkit::TestDir;

    fn hello(token: &str, grace_ms: u64) -> Hello {
        let (session, token) = ("s".to_owned(), token.to_owned());
        Hello { proto: PROTO, session, token, grace_ms, received: 5, copy: None }
    }

    /// Result of a caller that writes `line` to the process with `own`.
    async fn greeted(own: &Hello, line: String) -> Caller {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(line.as_bytes()).await.unwrap();
        greet(ours, own, 9).await
    }

    #[tokio::test]
    async fn only_the_token_resumes_and_only_within_a_grace() {
        let line = |hello: &Hello| format!("{}\n", serde_json::to_string(hello).unwrap());
        let own = hello("secret", 1000);
        let caller = greeted(&own, line(&own)).await;
        assert!(matches!(caller, Caller::Resumes { received: 5, .. }));
        for line in [line(&hello("other", 1000)), "{}\n".to_owned(), "\n".to_owned()] {
            assert!(matches!(greeted(&own, line).await, Caller::Other));
        }
        let short = hello("secret", 0);
        assert!(matches!(greeted(&short, line(&short)).await, Caller::Other));
        assert!(matches!(greeted(&short, "end\n".to_owned()).await, Caller::NewOwner(_)));
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_for_a_socket_is_an_error_that_says_what_to_do() {
        let dir = TestDir::empty();
        let at = dir.path().join("x".repeat(120));
        std::fs::create_dir(&at).unwrap();
        let files = FarFiles {
            home: at.clone(),
            session: at.clone(),
            copy: at.clone(),
            state: at.clone(),
            programs: at,
        };
        let refused = Holder::take_over(&files, true).await.unwrap_err().to_string();
        assert!(refused.contains("set XDG_STATE_HOME there"), "{refused}");
        assert!(Holder::take_over(&files, false).await.is_ok());
    }

    #[tokio::test]
    async fn a_new_worker_waits_for_the_end_of_the_earlier_one() {
        let dir = TestDir::with(&["s"]);
        let at = dir.path().to_owned();
        let files = FarFiles {
            home: at.clone(),
            session: at.join("s"),
            copy: at.join("c"),
            state: at.clone(),
            programs: at,
        };
        let earlier = Holder::take_over(&files, true).await.unwrap();
        let ending = async {
            let own = hello("secret", 1000);
            let Caller::NewOwner(stream) = greet(earlier.accept().await, &own, 0).await else {
                panic!()
            };
            drop(earlier);
            drop(stream);
        };
        let (later, ()) = tokio::join!(Holder::take_over(&files, true), ending);
        let calling = UnixStream::connect(files.socket());
        let (_accepted, called) = tokio::join!(async { later.unwrap().accept().await }, calling);
        called.unwrap();
    }
}
