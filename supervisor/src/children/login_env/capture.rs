//! One request to a one-shot process, such as that of the login shell: starts the process, and reads its reply.
//!
//! Like a worker, the process is not trusted: its reply may be wrong, missing or too large.

use crate::children::spawner::{SpawnRequestError, Spawner};
use crate::children::{OneShot, reap_or_kill, stderr_tail};
use futures_util::{SinkExt, StreamExt};
use quackd_ipc::frames::{self, Decoded};
use quackd_protocol::environment::{
    FROM_ENVIRONMENT_WORKER_TAGS, FromEnvironmentWorker, LoginEnvironment,
};
use quackd_protocol::foreign_text::message_line;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Timeout for the stderr tail of the process.
const STDERR_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum wait at shutdown: the traps of a shell after a hangup, and the exit of its monitor.
const STOP_LIMIT: Duration = Duration::from_millis(2500);

/// Maximum length of an error text from the process, in characters.
const MAX_TEXT: usize = 1024;

/// The reason why a request failed, for the log and for display.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error("cannot make a control channel: {0}")]
    Channel(#[source] io::Error),
    #[error("cannot start a process: {0}")]
    Spawn(#[from] SpawnRequestError),
    #[error("{0}")]
    Failed(String),
    #[error("the daemon is stopping")]
    Stopping,
    #[error("no answer after {0:?}")]
    Silent(Duration),
    #[error("the process ended without an answer ({0})")]
    Ended(String),
    #[error("an answer that cannot be used: {0}")]
    Malformed(String),
}

/// Cancels the requests when the daemon shuts down.
#[derive(Debug, Default)]
pub(crate) struct Stopping {
    begun: CancellationToken,
    processes: TaskTracker,
}

impl Stopping {
    /// Cancels the running requests.
    pub(crate) fn begin(&self) {
        self.begun.cancel();
        self.processes.close();
    }

    /// Waits until the processes have exited, for at most [`STOP_LIMIT`].
    pub(crate) async fn end(&self) {
        if timeout(STOP_LIMIT, self.processes.wait()).await.is_err() {
            tracing::warn!("programs of the user did not exit in time");
        }
    }
}

/// Returns the login environment of a reply.
pub(super) fn captured(reply: FromEnvironmentWorker) -> Result<LoginEnvironment, CaptureError> {
    match reply {
        FromEnvironmentWorker::Captured(environment) => Ok(environment),
        _ => Err(CaptureError::Malformed("another frame".to_owned())),
    }
}

/// A frame of a one-shot process.
pub(crate) trait OneShotReply: DeserializeOwned {
    /// Tags of the variants.
    const TAGS: &[&str];

    /// Turns a frame that means a failure of the process into an error.
    fn checked(self) -> Result<Self, CaptureError>;
}

impl OneShotReply for FromEnvironmentWorker {
    const TAGS: &[&str] = FROM_ENVIRONMENT_WORKER_TAGS;

    fn checked(self) -> Result<Self, CaptureError> {
        match self {
            Self::Failed { text } => Err(CaptureError::Failed(one_line(&text))),
            reply => Ok(reply),
        }
    }
}

/// Sends a request to a new process and returns the reply, as [`converse`].
pub(crate) async fn ask<A: OneShotReply>(
    one_shot: &OneShot,
    spawner: &Spawner,
    request: impl Serialize,
    stopping: &Stopping,
) -> Result<A, CaptureError> {
    converse(one_shot, spawner, stopping, |channel| exchange(channel, request)).await
}

/// Exchanges frames with a new process. Returns when the time limit of the process is over at the latest. The process is
/// then killed and reaped in the background.
pub(crate) async fn converse<A, F>(
    one_shot: &OneShot,
    spawner: &Spawner,
    stopping: &Stopping,
    exchange: impl FnOnce(UnixStream) -> F,
) -> Result<A, CaptureError>
where
    F: Future<Output = Result<A, CaptureError>>,
{
    let (channel, far_end) = quackd_ipc::link::pair().map_err(CaptureError::Channel)?;
    let spec = one_shot.spec();
    if stopping.begun.is_cancelled() {
        return Err(CaptureError::Stopping);
    }

    let living = stopping.processes.token();
    let spawned = spawner.spawn(spec.name, far_end).await?;
    one_shot.started(spawned.process.pid());
    let mut words = actix::spawn(stderr_tail(spawned.stderr));

    // The channel closes when the exchange ends, for any reason.
    let exchanged = tokio::select! {
        exchanged = timeout(spec.start, exchange(channel)) => exchanged,
        () = stopping.begun.cancelled() => Ok(Err(CaptureError::Stopping)),
    };

    let (process, spawner) = (spawned.process, spawner.clone());
    // The process sees its channel close, kills the shell and exits.
    actix::spawn(async move {
        reap_or_kill(&spawner, process, spec.shutdown).await;
        drop(living);
    });

    let mut result = exchanged.unwrap_or(Err(CaptureError::Silent(spec.start)));
    if let Err(CaptureError::Ended(_)) = result
        && let Ok(Ok(words)) = timeout(STDERR_TIMEOUT, &mut words).await
    {
        result = Err(CaptureError::Ended(one_line(&words)));
    }

    words.abort();
    one_shot.ended(result.as_ref().err().map(ToString::to_string).as_deref());
    result
}

/// Sends the request and reads the reply.
async fn exchange<A: OneShotReply>(
    channel: impl AsyncRead + AsyncWrite + Unpin,
    request: impl Serialize,
) -> Result<A, CaptureError> {
    let mut channel = Framed::new(channel, frames::codec());
    send(&mut channel, &request).await?;
    receive(&mut channel).await
}

/// Sends one frame to a process.
pub(crate) async fn send<C: AsyncWrite + Unpin>(
    channel: &mut Framed<C, LengthDelimitedCodec>,
    frame: &impl Serialize,
) -> Result<(), CaptureError> {
    let frame = frames::encode(frame);
    let frame = frame.map_err(|error| CaptureError::Channel(io::Error::other(error)))?;
    channel.send(frame).await.map_err(|_broken| CaptureError::Ended(String::new()))
}

/// Receives the next frame of a process.
pub(crate) async fn receive<A: OneShotReply, C: AsyncRead + Unpin>(
    channel: &mut Framed<C, LengthDelimitedCodec>,
) -> Result<A, CaptureError> {
    let malformed = |error: &dyn ToString| CaptureError::Malformed(one_line(&error.to_string()));
    let body = match channel.next().await {
        Some(Ok(body)) => body,
        Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(malformed(&error));
        }
        None | Some(Err(_)) => return Err(CaptureError::Ended(String::new())),
    };
    match frames::decode::<A>(&body, A::TAGS) {
        Ok(Decoded::Known(reply)) => reply.checked(),
        Ok(Decoded::Unknown(tag)) => Err(malformed(&format!("a `{tag}` frame"))),
        Err(error) => Err(malformed(&error)),
    }
}

fn one_line(text: &str) -> String {
    message_line(text.trim(), MAX_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::environment::CaptureRequest;
    use quackd_protocol::environment::ToEnvironmentWorker;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn request() -> CaptureRequest {
        CaptureRequest {
            run_dir: "/run".into(),
            base: vec![("A".into(), "b".into())],
            names: vec!["PATH".into()],
            prefixes: Vec::new(),
            deadline_ms: 10_000,
            untrusted: Vec::new(),
        }
    }

    /// Result of a reply with these bytes, after which the process closes the channel.
    async fn answered(bytes: &[u8]) -> Result<LoginEnvironment, CaptureError> {
        let (ours, mut theirs) = tokio::io::duplex(16 * 1024);
        let other = async {
            let mut length = [0; 4];
            theirs.read_exact(&mut length).await.unwrap();
            let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
            theirs.read_exact(&mut body).await.unwrap();
            let body: ToEnvironmentWorker = serde_json::from_slice(&body).unwrap();
            assert!(matches!(body, ToEnvironmentWorker::Capture(asked) if asked == request()));
            // The reader stops at a refused frame, so this write may fail.
            theirs.write_all(bytes).await.ok();
            drop(theirs);
        };
        let request = ToEnvironmentWorker::Capture(request());
        tokio::join!(exchange(ours, request), other).0.and_then(captured)
    }

    fn frame(body: &str) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap();
        [&length.to_be_bytes(), body.as_bytes()].concat()
    }

    #[tokio::test]
    async fn an_answer_is_taken() {
        let body = r#"{"captured":{"shell":"/bin/sh","interactive":false,"variables":[["PATH","/a"]],"took_ms":7}}"#;
        let environment = answered(&frame(body)).await.unwrap();
        let expected = LoginEnvironment {
            shell: "/bin/sh".into(),
            interactive: false,
            variables: vec![("PATH".into(), "/a".into())],
            took_ms: 7,
            confined: false,
        };
        assert_eq!(environment, expected);
    }

    #[tokio::test]
    async fn whatever_else_comes_is_an_error_in_one_short_line() {
        let long = format!(r#"{{"failed":{{"text":"{}"}}}}"#, "x\\n".repeat(9999));
        for (bytes, begin) in [
            (frame(r#"{"failed":{"text":" no\nshell "}}"#), "no shell"),
            (frame(&long), "x x "),
            (frame(r#"{"dance":{}}"#), "an answer that cannot be used: a `dance` frame"),
            (frame(r#"{"captured":{}}"#), "an answer that cannot be used: "),
            (frame(r#"{"tools":[]}"#), "an answer that cannot be used: another frame"),
            (frame("noise"), "an answer that cannot be used: "),
            (vec![255; 5000], "an answer that cannot be used: "),
            (frame("{}").split_at(5).0.to_vec(), "the process ended without an answer ()"),
            (Vec::new(), "the process ended without an answer ()"),
        ] {
            let text = answered(&bytes).await.unwrap_err().to_string();
            assert!(text.starts_with(begin), "{text}");
            assert!(text.chars().count() < MAX_TEXT + 100 && !text.contains('\n'), "{text}");
        }
    }
}
