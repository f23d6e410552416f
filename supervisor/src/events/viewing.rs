//! A client that is attached to a terminal: the bounded queue of its events, and the task that copies them to its outbox.
//!
//! The session's actor has one half, [`ViewerQueue`], and never waits. The client has the other half, [`Viewing`];
//! dropping it detaches the client. A client that reads too slowly gets the whole screen later, so its queue is small.

use crate::wire::client_outbox::ClientOutbox;
use bytes::Bytes;
use quackd_protocol::SessionId;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// Number of parts of a queue. A line takes one for each [`PART_BYTES`] or less.
pub(crate) const QUEUE_PARTS: usize = 16;

/// Size of a part, in bytes.
const PART_BYTES: usize = 128 * 1024;

fn parts_of(line: &Bytes) -> usize {
    line.len().div_ceil(PART_BYTES).clamp(1, QUEUE_PARTS)
}

/// State that both halves share.
#[derive(Debug, Default)]
struct QueueState {
    /// Parts of the lines that the client's outbox has not taken.
    used: AtomicUsize,
    is_closed: AtomicBool,
    /// Wakes the actor when the queue is empty or closed.
    changed: Notify,
}

/// Creates the two halves of a queue.
pub(crate) fn viewer_queue() -> (ViewerQueue, QueueReader) {
    // Each line takes a part. The last line of a terminal has its own place.
    let (sender, lines) = mpsc::channel(QUEUE_PARTS + 1);
    let state = Arc::<QueueState>::default();
    let queue = ViewerQueue { lines: sender, state: Arc::clone(&state) };
    (queue, QueueReader { lines, state })
}

/// The queue has no room for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// The half of the session's actor. Dropping it ends the client's task after the lines in it.
#[derive(Debug)]
pub(crate) struct ViewerQueue {
    lines: mpsc::Sender<Bytes>,
    state: Arc<QueueState>,
}

impl ViewerQueue {
    /// Adds a line.
    ///
    /// # Errors
    /// The queue has no room for it.
    pub(crate) fn push(&self, line: Bytes) -> Result<(), QueueFull> {
        let parts = parts_of(&line);
        if QUEUE_PARTS < self.state.used.load(Ordering::Relaxed) + parts {
            return Err(QueueFull);
        }

        self.add(line, parts);
        Ok(())
    }

    /// Adds the last line, for which there is always room.
    pub(crate) fn finish(self, line: Bytes) {
        let parts = parts_of(&line);
        self.add(line, parts);
    }

    fn add(&self, line: Bytes, parts: usize) {
        self.state.used.fetch_add(parts, Ordering::Relaxed);
        // A client that is gone needs no line.
        self.lines.try_send(line).ok();
    }

    /// Returns the number of free parts.
    pub(crate) fn free(&self) -> usize {
        QUEUE_PARTS.saturating_sub(self.state.used.load(Ordering::Relaxed))
    }

    /// Returns whether the client's outbox has taken every line.
    pub(crate) fn is_empty(&self) -> bool {
        self.free() == QUEUE_PARTS
    }

    /// Returns whether the client is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.is_closed.load(Ordering::Relaxed)
    }

    /// Returns a handle that waits until the queue is empty or one of its halves is dropped.
    pub(crate) fn changes(&self) -> QueueChanges {
        QueueChanges(Arc::clone(&self.state))
    }
}

impl Drop for ViewerQueue {
    fn drop(&mut self) {
        self.state.changed.notify_one();
    }
}

/// Waits for changes of a queue.
#[derive(Debug)]
pub(crate) struct QueueChanges(Arc<QueueState>);

impl QueueChanges {
    /// Waits until the queue is empty or one of its halves is dropped. A change before the call counts.
    pub(crate) async fn next(&self) {
        self.0.changed.notified().await;
    }
}

/// The reading side of a queue.
#[derive(Debug)]
pub(crate) struct QueueReader {
    lines: mpsc::Receiver<Bytes>,
    state: Arc<QueueState>,
}

impl QueueReader {
    /// Copies the lines to the client, until it or the terminal is gone.
    async fn forward(mut self, outbox: ClientOutbox) {
        while let Some(line) = self.lines.recv().await {
            let parts = parts_of(&line);
            if outbox.send_event(line).await.is_err() {
                return;
            }
            self.passed_on(parts);
        }
    }

    fn passed_on(&self, parts: usize) {
        if self.state.used.fetch_sub(parts, Ordering::Relaxed) == parts {
            self.state.changed.notify_one();
        }
    }

    /// Takes a line as the client's task does. For tests.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        let line = self.lines.try_recv().ok()?;
        self.passed_on(parts_of(&line));
        Some(line)
    }
}

impl Drop for QueueReader {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
        self.state.changed.notify_one();
    }
}

/// The client's half. Dropping it detaches the client.
#[derive(Debug)]
struct Viewing {
    session: SessionId,
    terminal: String,
    /// Until the task has it.
    reader: Option<QueueReader>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Viewing {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The terminals that a client is attached to.
#[derive(Debug, Default)]
pub(crate) struct Viewings(RefCell<Vec<Viewing>>);

impl Viewings {
    /// Adds a terminal, whose events are sent after [`Viewings::start`]. Ends an earlier attachment to it.
    pub(crate) fn add(&self, session: SessionId, terminal: String, reader: QueueReader) {
        let mut viewings = self.0.borrow_mut();
        viewings.retain(|viewing| {
            let is_over = viewing.task.as_ref().is_some_and(JoinHandle::is_finished);
            !is_over && (&viewing.session, &viewing.terminal) != (&session, &terminal)
        });
        viewings.push(Viewing { session, terminal, reader: Some(reader), task: None });
    }

    /// Starts sending. Call it after the reply to the request to attach is queued.
    pub(crate) fn start(&self, outbox: &ClientOutbox) {
        for viewing in self.0.borrow_mut().iter_mut() {
            if let Some(reader) = viewing.reader.take() {
                viewing.task = Some(actix::spawn(reader.forward(outbox.clone())));
            }
        }
    }

    /// Detaches the client from all terminals.
    pub(crate) fn end_all(&self) {
        drop(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_bounded_in_lines_and_bytes_and_has_room_for_the_last_line() {
        let (queue, mut reader) = viewer_queue();
        let line = Bytes::from_static(b"x\n");
        for _ in 0..QUEUE_PARTS {
            queue.push(line.clone()).unwrap();
        }
        assert_eq!((queue.push(line.clone()), queue.free()), (Err(QueueFull), 0));
        reader.take().unwrap();
        assert_eq!((queue.free(), queue.is_empty()), (1, false));
        let long = Bytes::from(vec![b'x'; PART_BYTES + 1]);
        assert_eq!(queue.push(long.clone()), Err(QueueFull), "it takes two parts");
        reader.take().unwrap();
        assert_eq!(queue.push(long), Ok(()));
        queue.finish(Bytes::from_static(b"last\n"));
        let lines: Vec<_> = std::iter::from_fn(|| reader.take()).collect();
        assert_eq!(lines.last().unwrap(), "last\n");
    }

    #[actix::test]
    async fn the_actor_is_woken_by_an_empty_queue_and_by_a_client_that_leaves() {
        let (queue, mut reader) = viewer_queue();
        let changes = queue.changes();
        queue.push(Bytes::from_static(b"x\n")).unwrap();
        reader.take().unwrap();
        changes.next().await;
        assert!(queue.is_empty() && !queue.is_closed());
        drop(reader);
        changes.next().await;
        assert!(queue.is_closed());
        drop(queue);
        changes.next().await;
    }
}
