//! One terminal: its size, its viewers and its input. Does no I/O: messages for the worker wait in [`Terminal::messages`],
//! and lines for clients go into the queues of the viewers. [`output`] passes output on.

mod output;

use crate::errors::TerminalRefusal;
use crate::events::client_registry::ClientId;
use crate::events::viewing::ViewerQueue;
use bytes::Bytes;
use quackd_protocol::limits::{MAX_TERMINAL_INPUT_PIECES, MAX_VIEWERS, TERMINAL_CREDITS};
use quackd_protocol::terminal::{CellSize, TerminalColors, TerminalSignal, ToTerminal};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::time::Instant;

/// Most requests for the screen of one terminal that its worker has not answered.
const MAX_ASKED: usize = 4 * MAX_VIEWERS;

/// Most signals that wait until the worker can take them.
const MAX_SIGNALS: usize = 8;

/// State of a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ViewerState {
    /// Waits for the screen that it has asked for.
    Waiting,
    /// Gets the output.
    Live,
    /// Gets nothing until its queue is empty.
    Lagging,
}

/// A client that is attached to a terminal.
#[derive(Debug)]
struct Viewer {
    number: u32,
    client: ClientId,
    queue: ViewerQueue,
    read_only: bool,
    as_rows: bool,
    /// Size of the client's window, if it is known.
    size: Option<CellSize>,
    /// Colors of the client's terminal, if they are known.
    colors: Option<TerminalColors>,
    state: ViewerState,
    /// Time of its last request for the screen.
    asked: Instant,
    /// Time since which its queue has been too full to return credits.
    full_since: Option<Instant>,
}

/// A client that attaches.
#[derive(Debug)]
pub(crate) struct NewViewer {
    pub(crate) client: ClientId,
    pub(crate) queue: ViewerQueue,
    pub(crate) read_only: bool,
    pub(crate) as_rows: bool,
    /// Size of the client's window, if it is known.
    pub(crate) size: Option<CellSize>,
    /// Whether the terminal gets the size now.
    pub(crate) sets_size: bool,
    /// Colors of the client's terminal, if they are known.
    pub(crate) colors: Option<TerminalColors>,
}

/// Kinds of viewers that get output, and whether some viewer lags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Watched {
    raw: bool,
    rows: bool,
    lagging: bool,
}

/// Result of typing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Typed {
    pub(super) is_taken: bool,
    /// The new size of the terminal, and the viewer that has set it.
    pub(super) resized: Option<Resized>,
}

/// Change of a terminal's size, for the other viewers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resized {
    pub(super) size: CellSize,
    /// Number of the viewer that has set it.
    by: u32,
}

/// One terminal of the worker.
#[derive(Debug)]
pub(super) struct Terminal {
    pub(super) id: String,
    pub(super) command: String,
    pub(super) size: CellSize,
    /// Empty until the program sets one.
    pub(super) title: String,
    /// Messages for the worker.
    pub(super) messages: VecDeque<ToTerminal>,
    viewers: Vec<Viewer>,
    /// Frames that the worker may send.
    credits: u32,
    /// Credits that a viewer returns when it has read its lines.
    owed: u32,
    /// Credits of frames that no viewer has taken. The next tick returns them, so that a worker cannot send without end.
    unwanted: u32,
    /// Pieces of input that the program has not taken.
    pieces: u32,
    /// Requests for the screen without an answer: number of the viewer, and whether it gets rows.
    asked: Vec<(u32, bool)>,
    watched: Watched,
    /// The viewer whose size the terminal gets: the one that typed last.
    owner: Option<u32>,
    /// Colors that the worker has: those of the client that attached or typed last.
    colors: Option<TerminalColors>,
}

impl Terminal {
    pub(super) fn new(id: String, command: String, size: CellSize) -> Self {
        Self {
            id,
            command,
            size,
            title: String::new(),
            messages: VecDeque::new(),
            viewers: Vec::new(),
            credits: TERMINAL_CREDITS,
            owed: 0,
            unwanted: 0,
            pieces: 0,
            asked: Vec::new(),
            watched: Watched::default(),
            owner: None,
            colors: None,
        }
    }

    pub(super) fn n_viewers(&self) -> usize {
        self.viewers.len()
    }

    /// Ends the terminal: returns the queues of its viewers.
    pub(super) fn into_queues(self) -> impl Iterator<Item = ViewerQueue> {
        self.viewers.into_iter().map(|viewer| viewer.queue)
    }

    /// Adds a viewer, and asks for its screen. A client that attaches again replaces its earlier attachment.
    ///
    /// # Errors
    /// `TooManyViewers` and `Busy`.
    pub(super) fn attach(
        &mut self,
        number: u32,
        new: NewViewer,
        now: Instant,
    ) -> Result<Option<Resized>, TerminalRefusal> {
        let others = self.viewers.iter().filter(|viewer| viewer.client != new.client).count();
        if MAX_VIEWERS <= others {
            return Err(TerminalRefusal::TooManyViewers(self.id.clone()));
        }
        if MAX_ASKED <= self.asked.len() {
            return Err(TerminalRefusal::Busy(self.id.clone()));
        }

        // A client also attaches again to get the whole screen, and then still owns the size.
        let earlier = self.viewers.iter().find(|viewer| viewer.client == new.client);
        let was_owner = earlier.is_some_and(|earlier| self.owner == Some(earlier.number));
        drop(self.remove(|viewer| viewer.client == new.client));

        let NewViewer { client, queue, read_only, as_rows, size, sets_size, colors } = new;
        let is_only_writer = self.n_writers() == 0 && size.is_some();
        if !read_only && (sets_size || was_owner || is_only_writer) {
            self.owner = Some(number);
        }
        let (state, full_since) = (ViewerState::Waiting, None);
        let viewer = Viewer {
            number,
            client,
            queue,
            read_only,
            as_rows,
            size,
            colors,
            state,
            asked: now,
            full_since,
        };
        self.viewers.push(viewer);

        // Before the screen, which then has the new size and is not followed by older output.
        let resized = self.adopt_size(number);
        self.adopt_colors(number);
        self.update_watched();
        self.ask(number, as_rows, !as_rows);
        Ok(resized)
    }

    fn ask(&mut self, viewer: u32, as_rows: bool, scrollback: bool) {
        self.asked.push((viewer, as_rows));
        self.messages.push_back(ToTerminal::Refresh { viewer, scrollback, as_rows });
    }

    /// Detaches a client, or all clients. Returns their queues.
    pub(super) fn detach(&mut self, client: Option<&ClientId>) -> Vec<ViewerQueue> {
        let removed = self.remove(|viewer| client.is_none_or(|client| viewer.client == *client));
        self.settle();
        removed.into_iter().map(|viewer| viewer.queue).collect()
    }

    fn remove(&mut self, is_removed: impl Fn(&Viewer) -> bool) -> Vec<Viewer> {
        let removed: Vec<_> = self.viewers.extract_if(.., |viewer| is_removed(viewer)).collect();
        // The terminal keeps its size.
        if removed.iter().any(|viewer| self.owner == Some(viewer.number)) {
            self.owner = None;
        }
        removed
    }

    /// Updates the kinds of viewers and the credits after some viewers have left.
    fn settle(&mut self) {
        self.update_watched();
        if self.viewers.is_empty() {
            self.return_all();
        } else {
            self.return_owed_by_nobody();
        }
    }

    /// Passes input of a client on.
    ///
    /// # Errors
    /// `NotAttached` and `ReadOnly`.
    pub(super) fn type_in(
        &mut self,
        client: &ClientId,
        bytes: Box<RawValue>,
    ) -> Result<Typed, TerminalRefusal> {
        let number = self.writer(client)?;
        if MAX_TERMINAL_INPUT_PIECES <= self.pieces {
            return Ok(Typed { is_taken: false, resized: None });
        }

        self.pieces += 1;
        self.owner = Some(number);
        // Before the input, whose echo then has the right width.
        let resized = self.adopt_size(number);
        self.adopt_colors(number);
        self.messages.push_back(ToTerminal::Input { bytes });
        Ok(Typed { is_taken: true, resized })
    }

    /// Sets the size of a client's window. The terminal gets it if the client typed last, or if it is the only one that
    /// may type.
    ///
    /// # Errors
    /// `NotAttached`.
    pub(super) fn resize(
        &mut self,
        client: &ClientId,
        size: CellSize,
    ) -> Result<Option<Resized>, TerminalRefusal> {
        let viewer = self.viewers.iter_mut().find(|viewer| viewer.client == *client);
        let viewer = viewer.ok_or_else(|| TerminalRefusal::NotAttached(self.id.clone()))?;
        viewer.size = Some(size);
        if viewer.read_only {
            return Ok(None);
        }

        let number = viewer.number;
        if self.owner.is_none() && self.n_writers() == 1 {
            self.owner = Some(number);
        }
        Ok(self.adopt_size(number))
    }

    fn n_writers(&self) -> usize {
        self.viewers.iter().filter(|viewer| !viewer.read_only).count()
    }

    fn writer(&self, client: &ClientId) -> Result<u32, TerminalRefusal> {
        let viewer = self.viewers.iter().find(|viewer| viewer.client == *client);
        match viewer {
            None => Err(TerminalRefusal::NotAttached(self.id.clone())),
            Some(viewer) if viewer.read_only => Err(TerminalRefusal::ReadOnly(self.id.clone())),
            Some(viewer) => Ok(viewer.number),
        }
    }

    /// Gives the terminal the size of its owner's window, if this viewer is the owner.
    fn adopt_size(&mut self, number: u32) -> Option<Resized> {
        let owner = self.owner.filter(|owner| *owner == number)?;
        let viewer = self.viewers.iter().find(|viewer| viewer.number == owner)?;
        let size = viewer.size.filter(|size| *size != self.size)?;
        self.size = size;
        // Only the last size counts.
        self.messages.retain(|message| !matches!(message, ToTerminal::Resize(_)));
        self.messages.push_back(ToTerminal::Resize(size));
        Some(Resized { size, by: owner })
    }

    /// Gives the terminal the colors of this viewer, if it may type.
    fn adopt_colors(&mut self, number: u32) {
        let viewer = self.viewers.iter().find(|it| it.number == number && !it.read_only);
        let colors = viewer.and_then(|viewer| viewer.colors);
        let Some(colors) = colors.filter(|colors| self.colors != Some(*colors)) else { return };
        self.colors = Some(colors);
        // Only the last colors count.
        self.messages.retain(|message| !matches!(message, ToTerminal::Colors(_)));
        self.messages.push_back(ToTerminal::Colors(colors));
    }

    /// Sends a new size to the other viewers. A viewer that lags gets it with the whole screen.
    pub(super) fn tell_size(&mut self, resized: Resized, line: &Bytes) {
        for viewer in self.viewers.iter_mut().filter(|viewer| viewer.number != resized.by) {
            if viewer.state == ViewerState::Live && viewer.queue.push(line.clone()).is_err() {
                viewer.state = ViewerState::Lagging;
            }
        }
        self.update_watched();
    }

    /// Counts a piece of input that the program has taken.
    ///
    /// # Errors
    /// No piece was sent.
    pub(super) fn input_taken(&mut self) -> Result<(), &'static str> {
        self.pieces = self.pieces.checked_sub(1).ok_or("input taken that was not sent")?;
        Ok(())
    }

    /// Signals the program in the foreground.
    ///
    /// # Errors
    /// `Busy`: the worker takes no messages.
    pub(super) fn signal(&mut self, signal: TerminalSignal) -> Result<(), TerminalRefusal> {
        let is_signal = |message: &&ToTerminal| matches!(message, ToTerminal::Signal { .. });
        if MAX_SIGNALS <= self.messages.iter().filter(is_signal).count() {
            return Err(TerminalRefusal::Busy(self.id.clone()));
        }
        self.messages.push_back(ToTerminal::Signal { signal });
        Ok(())
    }

    /// Sets the title. Returns true if it has changed.
    pub(super) fn set_title(&mut self, title: &str) -> bool {
        let is_new = self.title != title;
        if is_new {
            title.clone_into(&mut self.title);
        }
        is_new
    }
}

#[cfg(test)]
mod tests;
