//! Moves the copy of a session: the side of the supervisor. Runs in the process of a far errand.

use crate::client::{Client, ClientPipes, first_line_of};
use crate::error::LinkError;
use crate::handshake::{CopyWork, Hello, PROTO, greet, say_hello};
use crate::program::Program;
use crate::transfer::{FarAnswer, Incoming, keep_alive, open_sent_blocking, send_file};
use quackd_protocol::far::{FarStart, FarWorkspace};
use quackd_protocol::far_errand::{SendErrand, SendWork, SentErrand};
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::isolate::{MAX_ISOLATED_NOTE, MAX_ISOLATED_NOTES, MAX_SENT_BYTES};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// Time for the client's exit after the last byte.
const LEAVE: Duration = Duration::from_secs(3);

/// Longest reason of the far side, in characters.
const MAX_REASON: usize = 500;

/// Carries out the errand within `limit`.
///
/// # Errors
/// See [`LinkError`]. The file of [`SendWork::Take`] is then not complete.
pub(crate) async fn carry(errand: SendErrand, limit: Duration) -> Result<SentErrand, LinkError> {
    let SendErrand { mut far, session, work, .. } = errand;
    let mut program = None;
    if let Some(path) = &far.program {
        let mut file = Program::open_blocking(Path::new(path))?;
        file.fill_blocking(&mut far.start)?;
        file.fill_blocking(&mut far.stop)?;
        program = Some(file);
    }

    let (client, pipes) = Client::start(&far.start, &far.env)?;
    let queue = Duration::from_millis(far.queue_ms).min(limit);
    let moved = async { exchange(pipes, program.as_mut(), session, work, queue).await };
    let moved = timeout(limit, moved).await;
    let moved = moved.unwrap_or(Err(LinkError::TimedOut(limit.as_secs())));

    let words = client.end(LEAVE).await;
    if !far.stop.is_empty() {
        // A failure usually means that nothing is left to stop.
        first_line_of(&far.stop, &far.env).await;
    }
    moved.map_err(|error| described(&far, error, words))
}

/// Adds the place and the client's last words to an error.
fn described(far: &FarStart, error: LinkError, words: String) -> LinkError {
    let error = LinkError::At { place: far.place.clone(), error: Box::new(error) };
    if words.is_empty() {
        return error;
    }
    LinkError::Described { error: Box::new(error), words }
}

async fn exchange(
    pipes: ClientPipes,
    program: Option<&mut Program>,
    session: String,
    work: SendWork,
    queue: Duration,
) -> Result<SentErrand, LinkError> {
    let ClientPipes { stdout: mut from, stdin: mut to } = pipes;
    let (file, copy) = opened_blocking(&work)?;
    let greeting = timeout(queue, greet(&mut from, &mut to, program)).await;
    let greeting = greeting.map_err(|_elapsed| LinkError::TimedOut(queue.as_secs()))??;
    let sent = if let CopyWork::Put { bytes, .. } = copy { bytes } else { 0 };
    let hello = Hello {
        proto: PROTO,
        session,
        token: String::new(),
        grace_ms: 0,
        received: 0,
        copy: Some(copy),
    };
    say_hello(&mut to, &hello).await?;

    let mut incoming = Incoming::new(from, greeting.rest);
    let sending = async {
        if let Some(file) = file.as_ref().filter(|_| 0 < sent)
            && let Err(error) = send_file(&mut to, file, sent).await
        {
            return error;
        }
        keep_alive(&mut to).await
    };
    let receiving = async {
        let answer = incoming.answer().await?;
        let (path, bytes, notes) = match answer {
            FarAnswer::Done { path, bytes, notes } => (path, bytes, notes),
            FarAnswer::Failed { text } => {
                return Err(LinkError::Refused(message_line(&text, MAX_REASON)));
            }
        };
        if let (SendWork::Take { .. }, Some(file)) = (&work, &file) {
            if MAX_SENT_BYTES < bytes {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
            }
            incoming.file(file, bytes).await?;
        }
        // The path becomes part of the text of a workspace.
        if FarWorkspace::new("x", "", &path).is_err() {
            return Err(LinkError::Refused("the directory there has an unusable path".to_owned()));
        }
        let note = |line: &String| message_line(line, MAX_ISOLATED_NOTE);
        let notes = notes.iter().take(MAX_ISOLATED_NOTES).map(note).collect();
        Ok(SentErrand { path, bytes: bytes.max(sent), notes })
    };
    tokio::select! {
        // The far side may answer before it has everything, for example that its disk is full.
        biased;
        received = receiving => received,
        error = sending => Err(error.into()),
    }
}

/// Opens the file on this machine. Returns it with the work for the far side.
fn opened_blocking(work: &SendWork) -> io::Result<(Option<File>, CopyWork)> {
    Ok(match work {
        SendWork::Put { file, is_new, limits } => {
            let file = open_sent_blocking(file)?;
            let bytes = file.metadata()?.len();
            (Some(file), CopyWork::Put { bytes, is_new: *is_new, limits: *limits })
        }
        SendWork::Take { file, limits } => {
            // Left by an interrupted transfer.
            fs::remove_file(file).ok();
            let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
            (Some(new), CopyWork::Take { limits: *limits })
        }
        SendWork::Remove {} => (None, CopyWork::Remove {}),
    })
}
