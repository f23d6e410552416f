//! Tries an engine: a handshake without a session. Used by the command line.

use crate::client::{Client, first_line_of};
use crate::error::LinkError;
use crate::handshake::{Greeting, greet};
use crate::program::Program;
use quackd_protocol::far::FarStart;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time for the client's exit after its input was closed.
const LEAVE: Duration = Duration::from_secs(5);

/// Result of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// Version of quackd there. It equals the version here.
    pub version: String,
    /// Whether the far side asked for the program.
    pub sent_program: bool,
    /// Time from the start of the client until the far side was ready.
    pub connected: Duration,
}

/// Starts the engine's client, waits until the far side is ready, for at most `queue_ms`, and ends both. Reads the file of
/// the program without a separate thread. This process must be a sub-reaper to end processes that left the client's group.
///
/// # Errors
/// See [`LinkError`].
pub async fn probe(far: &FarStart) -> Result<ProbeReport, LinkError> {
    let mut words = far.start.clone();
    let mut program = None;
    if let Some(path) = &far.program {
        let mut file = Program::open_blocking(Path::new(path))?;
        file.fill_blocking(&mut words)?;
        program = Some(file);
    }

    let begin = Instant::now();
    let (client, mut pipes) = Client::start(&words, &far.env)?;
    let greeting = greet(&mut pipes.stdout, &mut pipes.stdin, program.as_mut());
    let limit = Duration::from_millis(far.queue_ms);
    let greeting = timeout(limit, greeting).await;
    let connected = begin.elapsed();

    drop(pipes);
    let words = client.end(LEAVE).await;
    if !far.stop.is_empty() {
        // A failure usually means that nothing is left to stop.
        first_line_of(&far.stop, &far.env).await;
    }

    let error = match greeting {
        Ok(Ok(Greeting { ready, sent_program, .. })) => {
            return Ok(ProbeReport { version: ready.version, sent_program, connected });
        }
        Ok(Err(error)) => error,
        Err(_elapsed) => LinkError::TimedOut(limit.as_secs()),
    };
    if words.is_empty() {
        return Err(error);
    }
    Err(LinkError::Described { error: Box::new(error), words })
}
