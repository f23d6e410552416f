//! Passes the output of a terminal on to its viewers, and returns the credits for it.
//!
//! A viewer whose queue is full gets nothing until its queue is empty, and then the whole screen. The fastest viewers set
//! the pace of the worker: a credit is returned when one of them has taken the frame and has room for as many as there
//! are credits, so that a viewer that reads as fast as the program prints misses nothing. A viewer that does not read
//! sets the pace for a second at most.

use super::{MAX_ASKED, Terminal, Viewer, ViewerState, Watched};
use crate::events::viewing::QUEUE_PARTS;
use bytes::Bytes;
use quackd_protocol::limits::{TERMINAL_CREDITS, TERMINAL_REDRAW_INTERVAL};
use quackd_protocol::terminal::ToTerminal;
use std::time::Instant;

/// Free parts of a queue with which a credit is returned at once. Further lines than those with credits are rare.
const EARLY_CREDIT_PARTS: usize = 12;

const _: () = assert!(TERMINAL_CREDITS as usize <= EARLY_CREDIT_PARTS);
const _: () = assert!(EARLY_CREDIT_PARTS < QUEUE_PARTS);

impl Terminal {
    /// Takes the credit of a frame.
    ///
    /// # Errors
    /// The worker had none.
    pub(in crate::session::worker) fn pay(&mut self) -> Result<(), &'static str> {
        self.credits = self.credits.checked_sub(1).ok_or("terminal output without a credit")?;
        Ok(())
    }

    /// Passes a frame that has cost a credit on to the viewers of its kind.
    pub(in crate::session::worker) fn pass_on(
        &mut self,
        as_rows: bool,
        line: &Bytes,
        now: Instant,
    ) {
        let (mut is_taken, mut has_room) = (false, false);
        let is_live =
            |viewer: &&mut Viewer| viewer.as_rows == as_rows && viewer.state == ViewerState::Live;
        for viewer in self.viewers.iter_mut().filter(is_live) {
            if viewer.queue.push(line.clone()).is_err() {
                viewer.state = ViewerState::Lagging;
                continue;
            }
            is_taken = true;
            if EARLY_CREDIT_PARTS <= viewer.queue.free() {
                has_room = true;
            } else {
                viewer.full_since.get_or_insert(now);
            }
        }

        match (is_taken, has_room) {
            (true, true) => self.give_back(1),
            (true, false) => self.owed += 1,
            (false, _) => self.unwanted += 1,
        }
        self.update_watched();
    }

    /// Counts the credit of a frame that no viewer gets. The next [`Terminal::tick`] returns it.
    pub(in crate::session::worker) fn keep_credit(&mut self) {
        self.unwanted += 1;
    }

    /// Sends a line that changes no screen to the viewers that may type. A viewer without room for it misses it.
    pub(in crate::session::worker) fn tell_writers(&self, line: &Bytes) {
        for viewer in self.viewers.iter().filter(|viewer| !viewer.read_only) {
            viewer.queue.push(line.clone()).ok();
        }
    }

    /// Whether a viewer gets frames of this kind.
    pub(in crate::session::worker) fn has_live(&self, as_rows: bool) -> bool {
        let mut viewers = self.viewers.iter();
        viewers.any(|viewer| viewer.as_rows == as_rows && viewer.state == ViewerState::Live)
    }

    /// Passes a screen on: to the viewer that has asked for it, or for a credit to all viewers of its kind.
    ///
    /// # Errors
    /// The viewer has not asked, or the worker had no credit.
    pub(in crate::session::worker) fn show(
        &mut self,
        viewer: Option<u32>,
        as_rows: bool,
        line: Bytes,
        now: Instant,
    ) -> Result<(), &'static str> {
        if let Some(number) = viewer {
            return self.answer(number, as_rows, line);
        }
        self.pay()?;
        self.pass_on(as_rows, &line, now);
        Ok(())
    }

    /// # Errors
    /// The viewer has not asked.
    pub(super) fn answer(
        &mut self,
        number: u32,
        as_rows: bool,
        line: Bytes,
    ) -> Result<(), &'static str> {
        let asked = self.asked.iter().position(|asked| *asked == (number, as_rows));
        self.asked.swap_remove(asked.ok_or("a screen that no viewer has asked for")?);
        // The viewer may have left.
        if let Some(viewer) = self.viewers.iter_mut().find(|viewer| viewer.number == number) {
            viewer.state = match viewer.queue.push(line) {
                Ok(()) => ViewerState::Live,
                Err(_full) => ViewerState::Lagging,
            };
        }
        self.update_watched();
        Ok(())
    }

    /// Handles an empty queue of a viewer, or the loss of its client. Returns false if the viewer is gone.
    pub(in crate::session::worker) fn queue_changed(&mut self, number: u32, now: Instant) -> bool {
        let Some(viewer) = self.viewers.iter_mut().find(|viewer| viewer.number == number) else {
            return false;
        };
        if viewer.queue.is_closed() {
            drop(self.remove(|viewer| viewer.number == number));
            self.settle();
            return false;
        }
        if !viewer.queue.is_empty() {
            return true;
        }

        viewer.full_since = None;
        if viewer.state == ViewerState::Live {
            self.give_back_owed();
        }
        self.refresh_lagging(now);
        true
    }

    /// Asks for the screen of the viewers whose queues are empty again.
    fn refresh_lagging(&mut self, now: Instant) {
        let mut ready = Vec::new();
        for viewer in &mut self.viewers {
            // The others ask after a later tick.
            let may_ask = self.asked.len() + ready.len() < MAX_ASKED;
            let is_due = may_ask
                && viewer.state == ViewerState::Lagging
                && viewer.queue.is_empty()
                && TERMINAL_REDRAW_INTERVAL <= now.saturating_duration_since(viewer.asked);
            if is_due {
                (viewer.state, viewer.asked, viewer.full_since) = (ViewerState::Waiting, now, None);
                ready.push((viewer.number, viewer.as_rows));
            }
        }

        self.update_watched();
        for (number, as_rows) in ready {
            self.ask(number, as_rows, false);
        }
    }

    /// Returns credits that are due, and marks viewers that do not read as lagging.
    pub(in crate::session::worker) fn tick(&mut self, now: Instant) {
        for viewer in &mut self.viewers {
            let is_stuck = viewer.full_since.is_some_and(|since| {
                TERMINAL_REDRAW_INTERVAL <= now.saturating_duration_since(since)
            });
            if is_stuck && viewer.state == ViewerState::Live {
                viewer.state = ViewerState::Lagging;
            }
        }

        let unwanted = std::mem::take(&mut self.unwanted);
        self.give_back(unwanted);
        self.return_owed_by_nobody();
        self.refresh_lagging(now);
    }

    /// Whether the next [`Terminal::tick`] may do something.
    pub(in crate::session::worker) fn needs_tick(&self) -> bool {
        let is_ready = |it: &Viewer| it.state == ViewerState::Lagging && it.queue.is_empty();
        self.owed != 0 || self.unwanted != 0 || self.viewers.iter().any(is_ready)
    }

    /// Returns the credits that no viewer will return.
    pub(super) fn return_owed_by_nobody(&mut self) {
        let is_reading = |it: &Viewer| it.state == ViewerState::Live && it.full_since.is_some();
        if !self.viewers.iter().any(is_reading) {
            self.give_back_owed();
        }
    }

    pub(super) fn return_all(&mut self) {
        let unwanted = std::mem::take(&mut self.unwanted);
        self.give_back(unwanted);
        self.give_back_owed();
    }

    fn give_back_owed(&mut self) {
        let owed = std::mem::take(&mut self.owed);
        self.give_back(owed);
    }

    fn give_back(&mut self, n: u32) {
        self.credits += n;
        self.messages.extend((0..n).map(|_| ToTerminal::Taken {}));
    }

    /// Notifies the worker of the kinds of viewers that get output. A viewer that lags gets none; the worker delays the
    /// end of the program until it has asked for the screen.
    pub(super) fn update_watched(&mut self) {
        let gets = |as_rows| {
            let mut viewers = self.viewers.iter();
            viewers.any(|it| it.as_rows == as_rows && it.state != ViewerState::Lagging)
        };
        let lagging = self.viewers.iter().any(|it| it.state == ViewerState::Lagging);
        let watched = Watched { raw: gets(false), rows: gets(true), lagging };

        if watched != self.watched {
            self.watched = watched;
            let Watched { raw, rows, lagging } = watched;
            let message = ToTerminal::Watch { raw, rows, lagging };
            // Only the last one counts. It keeps the place of an earlier one, before the requests for screens that
            // belong to it.
            let is_watch = |waiting: &&mut ToTerminal| matches!(waiting, ToTerminal::Watch { .. });
            match self.messages.iter_mut().find(is_watch) {
                Some(waiting) => *waiting = message,
                None => self.messages.push_back(message),
            }
        }
    }
}
