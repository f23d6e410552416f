//! Decides which message about a terminal the supervisor gets next, and when. Without I/O. Called by
//! [`super::terminal`].
//!
//! Output costs a credit. Without one, and if more is printed than one message holds, output is dropped, and the whole
//! screen is sent later. So a viewer never slows the program, and no queue grows.

use super::frames::{self, Drawings};
use quackd_protocol::limits::{
    MAX_TERMINAL_INPUT_PIECES, MAX_VIEWERS, TERMINAL_CREDITS, TERMINAL_FRAME_INTERVAL,
    TERMINAL_ROWS_INTERVAL,
};
use quackd_protocol::output::MAX_PIECE_BYTES;
use quackd_protocol::terminal::{FromTerminal, ScreenRows, TerminalExit};
use quackd_terminal::Screen;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Shortest time between two titles.
const TITLE_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two addresses.
const ADDRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which an address waits for a viewer.
const ADDRESS_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Longest wait for viewers of the last output of a program that has ended.
const LAST_OUTPUT_LIMIT: Duration = Duration::from_secs(2);

/// Most viewers whose screen is not sent yet. The supervisor asks once for each.
const MAX_REFRESHES: usize = 4 * MAX_VIEWERS;

/// A viewer that needs the whole screen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refresh {
    pub(super) viewer: u32,
    pub(super) has_scrollback: bool,
    pub(super) as_rows: bool,
}

/// The next message, or when there may be one.
#[derive(Debug)]
pub(super) enum Due {
    Now(FromTerminal),
    At(Instant),
    /// After a change.
    Change,
    /// Never: the last message was sent.
    Over,
}

impl Due {
    /// Returns the earlier of two times. `None` for `at`: after a change.
    pub(super) fn or_at(self, at: Option<Instant>) -> Self {
        match (self, at) {
            (Self::Change, Some(at)) => Self::At(at),
            (Self::At(first), Some(at)) => Self::At(first.min(at)),
            (due, _) => due,
        }
    }
}

/// State of the messages about one terminal: credits, unsent changes, and times of the last messages.
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    /// Whether some viewer gets bytes, or rows.
    has_raw: bool,
    has_rows: bool,
    /// Whether some viewer will ask for the screen when it has read what it has.
    has_lagging: bool,
    /// Credits that the supervisor has not returned.
    spent: u32,
    /// Output that was not sent.
    pending: Vec<u8>,
    /// Whether output was dropped.
    must_redraw: bool,
    /// Whether the screen may differ from `last_rows`.
    may_differ: bool,
    /// Rows that all viewers of rows have. `None`: they get all rows next.
    last_rows: Option<ScreenRows>,
    /// Drawings of the screen since its last change.
    drawings: Drawings,
    refreshes: VecDeque<Refresh>,
    /// Pieces of input that the program has taken.
    n_taken: u32,
    /// Title that was sent last.
    title: String,
    /// Address that the program has asked to open last and that was not sent, with its time.
    address: Option<(String, Instant)>,
    output_sent: Option<Instant>,
    redraw_sent: Option<Instant>,
    rows_sent: Option<Instant>,
    title_sent: Option<Instant>,
    address_sent: Option<Instant>,
    end: End,
}

/// End of the program.
#[derive(Debug, Default)]
enum End {
    #[default]
    Running,
    Ended {
        exit: TerminalExit,
        at: Instant,
    },
    Sent,
}

impl Forwarding {
    /// Notes output of the program.
    pub(super) fn output(&mut self, bytes: &[u8]) {
        (self.may_differ, self.drawings) = (true, Drawings::default());
        if !self.has_raw || self.must_redraw {
            return;
        }

        self.pending.extend_from_slice(bytes);
        if MAX_PIECE_BYTES < self.pending.len() {
            self.drop_output();
        }
    }

    /// Notes that the screen has another size: all viewers get it as a whole.
    pub(super) fn resized(&mut self) {
        (self.may_differ, self.last_rows) = (true, None);
        self.drawings = Drawings::default();
        if self.has_raw {
            self.drop_output();
        }
    }

    /// Notes an address that the program asks to open.
    pub(super) fn open(&mut self, address: String, now: Instant) {
        self.address = Some((address, now));
    }

    /// Sets the kinds of viewers, and whether some viewer lags.
    pub(super) fn watch(&mut self, has_raw: bool, has_rows: bool, has_lagging: bool) {
        if !has_raw {
            self.pending = Vec::new();
            self.must_redraw = false;
        }
        // Without viewers of rows, `last_rows` becomes outdated. The next viewer needs all rows.
        if !(has_rows && self.has_rows) {
            (self.may_differ, self.last_rows) = (true, None);
        }
        (self.has_raw, self.has_rows, self.has_lagging) = (has_raw, has_rows, has_lagging);
    }

    /// Notes a viewer that needs the whole screen.
    pub(super) fn refresh(&mut self, refresh: Refresh) {
        if self.refreshes.len() < MAX_REFRESHES {
            self.refreshes.push_back(refresh);
        }
    }

    fn has_credit(&self) -> bool {
        self.spent < TERMINAL_CREDITS
    }

    /// Returns a credit.
    pub(super) fn add_credit(&mut self) {
        self.spent = self.spent.saturating_sub(1);
    }

    /// Notes that the program has taken a piece of input.
    pub(super) fn input_taken(&mut self) {
        // The supervisor has no more of them outstanding.
        self.n_taken = MAX_TERMINAL_INPUT_PIECES.min(self.n_taken + 1);
    }

    /// Notes the end of the program. All its output was noted before.
    pub(super) fn end(&mut self, exit: TerminalExit, now: Instant) {
        self.end = End::Ended { exit, at: now };
    }

    /// Whether the program runs.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.end, End::Running)
    }

    /// Whether the end of the program was returned as a message.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.end, End::Sent)
    }

    /// Returns the next message about the screen.
    pub(super) fn next(&mut self, screen: &Screen, now: Instant) -> Due {
        if let Some(message) = self.answer(screen, now) {
            return Due::Now(message);
        }
        match &self.end {
            End::Running => self.news(screen, now),
            End::Ended { at, .. } => {
                let until = *at + LAST_OUTPUT_LIMIT;
                self.last_news(screen, now, until)
            }
            End::Sent => Due::Over,
        }
    }

    /// Returns an answer, which costs no credit.
    fn answer(&mut self, screen: &Screen, now: Instant) -> Option<FromTerminal> {
        if let Some(left) = self.n_taken.checked_sub(1) {
            self.n_taken = left;
            return Some(FromTerminal::InputTaken {});
        }

        let Refresh { viewer, has_scrollback, as_rows } = *self.refreshes.front()?;
        // Output before the answer is not news for the viewer.
        if !self.pending.is_empty() {
            if self.has_credit() {
                return Some(self.take_output(now));
            }
            self.drop_output();
        }

        self.refreshes.pop_front();
        if !as_rows {
            return Some(self.drawings.redraw(screen, Some(viewer), has_scrollback));
        }
        if self.may_differ {
            // This viewer has newer rows than the others, so changes since the last report are not enough.
            self.last_rows = None;
        }
        Some(self.drawings.rows(screen, viewer))
    }

    /// Returns the next message for all viewers. The rest of a program that has ended does not wait for an interval.
    fn news(&mut self, screen: &Screen, now: Instant) -> Due {
        if !self.has_credit() {
            return Due::Change;
        }

        let is_running = self.is_running();
        let mut wake: Option<Instant> = None;
        let mut is_due = |sent: Option<Instant>, interval: Duration| {
            let at = sent.filter(|_| is_running).map_or(now, |sent| sent + interval);
            let is_due = at <= now;
            if !is_due {
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
            }
            is_due
        };

        let title = screen.title().unwrap_or_default();
        if is_running && title != self.title && is_due(self.title_sent, TITLE_INTERVAL) {
            return Due::Now(self.take_title(title, now));
        }
        let is_asked = self.address.is_some() && (self.has_raw || self.has_rows);
        if is_asked
            && is_due(self.address_sent, ADDRESS_INTERVAL)
            && let Some(open) = self.take_address(now)
        {
            return Due::Now(open);
        }
        if self.must_redraw && is_due(self.redraw_sent, TERMINAL_ROWS_INTERVAL) {
            return Due::Now(self.take_redraw(screen, now));
        }
        if !self.pending.is_empty() && is_due(self.output_sent, TERMINAL_FRAME_INTERVAL) {
            return Due::Now(self.take_output(now));
        }
        if self.has_rows
            && self.may_differ
            && is_due(self.rows_sent, TERMINAL_ROWS_INTERVAL)
            && let Some(rows) = self.take_rows(screen, now)
        {
            return Due::Now(rows);
        }
        Due::Change.or_at(wake)
    }

    /// Returns the rest of the output of a program that has ended, then its end. Does not wait after `until` for credits
    /// and for viewers that lag.
    fn last_news(&mut self, screen: &Screen, now: Instant, until: Instant) -> Due {
        if let news @ Due::Now(_) = self.news(screen, now) {
            return news;
        }

        let has_rest = self.must_redraw
            || !self.pending.is_empty()
            || (self.has_rows && self.may_differ)
            || self.has_lagging;
        if has_rest && now < until {
            return Due::At(until);
        }
        self.drawings = Drawings::default();
        match std::mem::replace(&mut self.end, End::Sent) {
            End::Ended { exit, .. } => Due::Now(FromTerminal::Exited(exit)),
            End::Running | End::Sent => Due::Over,
        }
    }

    fn drop_output(&mut self) {
        self.pending.clear();
        self.must_redraw = true;
    }

    fn take_output(&mut self, now: Instant) -> FromTerminal {
        let message = frames::output(&self.pending);
        self.pending.clear();
        self.output_sent = Some(now);
        self.pay(message)
    }

    fn take_redraw(&mut self, screen: &Screen, now: Instant) -> FromTerminal {
        self.must_redraw = false;
        (self.redraw_sent, self.output_sent) = (Some(now), Some(now));
        let redraw = self.drawings.redraw(screen, None, false);
        self.pay(redraw)
    }

    /// Returns the rows that have changed. `None`, for no credit: nothing has.
    fn take_rows(&mut self, screen: &Screen, now: Instant) -> Option<FromTerminal> {
        let rows = frames::screen_rows(screen);
        let news = frames::changed(self.last_rows.as_ref(), &rows);
        (self.may_differ, self.last_rows) = (false, Some(rows));
        let news = news?;
        self.rows_sent = Some(now);
        Some(self.pay(frames::rows(news)))
    }

    fn take_title(&mut self, title: &str, now: Instant) -> FromTerminal {
        self.title = title.to_owned();
        self.title_sent = Some(now);
        self.pay(FromTerminal::Title { title: title.to_owned() })
    }

    /// Returns the address to open. `None`, for no credit: no viewer came in time.
    fn take_address(&mut self, now: Instant) -> Option<FromTerminal> {
        let (address, at) = self.address.take()?;
        if ADDRESS_LIMIT < now.saturating_duration_since(at) {
            return None;
        }
        self.address_sent = Some(now);
        Some(self.pay(FromTerminal::Open { address }))
    }

    fn pay(&mut self, message: FromTerminal) -> FromTerminal {
        self.spent += 1;
        message
    }
}

#[cfg(test)]
mod tests;
