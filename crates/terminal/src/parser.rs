//! The parser before screen and filter: splits bytes into clean text, controls, control sequences and whole strings.
//!
//! Unsafe characters never reach a [`Sink`]: C1 controls, also those in UTF-8, DEL, and invisible characters at a place
//! where no script needs them. A string reaches it only if BEL or ST ended it, and only if it has fewer
//! than `MAX_STRING` bytes. CAN, SUB and every other escape cancel a string. Invalid UTF-8 becomes U+FFFD.

use crate::csi::Csi;
use quackd_protocol::foreign_text::UnsafeCharFilter;
use std::fmt::{Debug, Formatter};

/// Maximum size of a device control string in bytes. Longer ones are dropped.
const MAX_DCS: usize = 1024;

/// Number of parts of a string that `vte` splits. It drops the rest, so a string with as many is dropped.
const MAX_PARTS: usize = 16;

/// End of a string. An answer has the same end as its query.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Bel,
    St,
}

/// Receiver of parsed output.
pub(crate) trait Sink {
    /// A safe character.
    fn text(&mut self, c: char);
    /// A C0 control, without CAN, SUB and ESC.
    fn control(&mut self, byte: u8);
    /// An escape sequence with at most one intermediate.
    fn escape(&mut self, intermediate: Option<u8>, byte: u8);
    /// A control sequence.
    fn csi(&mut self, csi: &Csi<'_>);
    /// An operating system command, split at semicolons.
    fn osc(&mut self, parts: &[&[u8]], end: End);
    /// A request for terminfo capabilities (`DCS + q`), without its first bytes.
    fn capabilities(&mut self, names: &[u8]);
}

/// A string that ended with ESC, which is the first half of ST or cancels it.
enum Pending {
    None,
    Osc(Vec<Vec<u8>>),
    Capabilities(Vec<u8>),
}

/// Parser with its state between calls. Strings of `MAX_STRING` bytes and more are dropped.
pub(crate) struct Parser<const MAX_STRING: usize> {
    vte: Box<vte::Parser<MAX_STRING>>,
    /// First bytes of a character that is split over two calls. `vte` drops characters after a split one.
    split_char: Vec<u8>,
    state: State,
}

struct State {
    /// Filter of characters. It gets ASCII characters only before another one.
    unsafe_chars: UnsafeCharFilter,
    /// Last character, if it was ASCII and the filter did not get it.
    ascii: Option<char>,
    /// Whether the filter has characters that an end must follow.
    has_context: bool,
    safe: String,
    pending: Pending,
    /// Bytes of a request for capabilities, while one is read.
    dcs: Option<Vec<u8>>,
}

impl<const MAX_STRING: usize> Debug for Parser<MAX_STRING> {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Parser").finish_non_exhaustive()
    }
}

impl<const MAX_STRING: usize> Parser<MAX_STRING> {
    /// Without the feature `std`, the buffer of `vte` is an array in the parser. With it, a string has no bound.
    const IS_BOUNDED: () = assert!(MAX_STRING < size_of::<vte::Parser<MAX_STRING>>());

    pub(crate) fn new() -> Self {
        let () = Self::IS_BOUNDED;
        let state = State {
            unsafe_chars: UnsafeCharFilter::default(),
            ascii: None,
            has_context: false,
            safe: String::new(),
            pending: Pending::None,
            dcs: None,
        };
        Self { vte: Box::default(), split_char: Vec::new(), state }
    }

    /// Parses `bytes`, which may begin and end inside of a sequence.
    pub(crate) fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink) {
        let mut joined = std::mem::take(&mut self.split_char);
        let bytes = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let (bytes, split_char) = bytes.split_at(bytes.len() - n_split(bytes));
        self.split_char = split_char.to_vec();

        let mut performer = Performer { state: &mut self.state, sink, max_string: MAX_STRING };
        self.vte.advance(&mut performer, bytes);
    }
}

/// Returns the number of bytes at the end that begin a character.
fn n_split(bytes: &[u8]) -> usize {
    let n_after =
        bytes.iter().rev().take(3).take_while(|byte| (0x80..0xc0).contains(*byte)).count();
    let Some(start) = bytes.len().checked_sub(n_after + 1) else { return 0 };
    let rest = bytes.get(start..).unwrap_or_default();
    let is_split = str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
    if is_split { rest.len() } else { 0 }
}

struct Performer<'a, S: Sink> {
    state: &'a mut State,
    sink: &'a mut S,
    max_string: usize,
}

impl<S: Sink> Performer<'_, S> {
    /// Ends the text and cancels a string that no ST ended.
    fn end_text(&mut self) {
        if self.state.has_context {
            // A joiner that the filter still has joins nothing.
            self.state.unsafe_chars.finish(&mut self.state.safe);
            self.state.has_context = false;
        }
        self.state.ascii = None;
        self.state.pending = Pending::None;
    }
}

impl<S: Sink> vte::Perform for Performer<'_, S> {
    fn print(&mut self, c: char) {
        if c.is_ascii() {
            if c != '\x7f' {
                self.end_text();
                self.state.ascii = Some(c);
                self.sink.text(c);
            }
            return;
        }
        if c.is_control() {
            return;
        }

        self.state.has_context = true;
        self.state.pending = Pending::None;
        let State { unsafe_chars, ascii, safe, .. } = &mut *self.state;
        if let Some(before) = ascii.take() {
            unsafe_chars.feed(before, safe);
        }
        safe.clear();
        unsafe_chars.feed(c, safe);

        for shown in safe.chars() {
            // The filter marks characters that must not be shown. They have no width, a mark would have one.
            if shown != char::REPLACEMENT_CHARACTER || c == shown {
                self.sink.text(shown);
            }
        }
    }

    fn execute(&mut self, byte: u8) {
        self.end_text();
        if byte < 0x20 && !matches!(byte, 0x18 | 0x1a | 0x1b) {
            self.sink.control(byte);
        }
    }

    fn hook(&mut self, _: &vte::Params, intermediates: &[u8], is_cut: bool, last: char) {
        self.end_text();
        self.state.dcs = (intermediates == b"+" && !is_cut && last == 'q').then(Vec::new);
    }

    fn put(&mut self, byte: u8) {
        match &mut self.state.dcs {
            Some(dcs) if dcs.len() < MAX_DCS => dcs.push(byte),
            dcs => *dcs = None,
        }
    }

    fn unhook(&mut self) {
        self.state.pending = self.state.dcs.take().map_or(Pending::None, Pending::Capabilities);
    }

    fn osc_dispatch(&mut self, parts: &[&[u8]], is_bel: bool) {
        self.end_text();
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if MAX_PARTS <= parts.len() || self.max_string <= size {
            return;
        }
        if is_bel {
            self.sink.osc(parts, End::Bel);
        } else {
            self.state.pending = Pending::Osc(parts.iter().map(|part| part.to_vec()).collect());
        }
    }

    fn csi_dispatch(
        &mut self,
        params: &vte::Params,
        intermediates: &[u8],
        is_cut: bool,
        last: char,
    ) {
        self.end_text();
        let is_marker = |byte: &u8| (b'<'..=b'?').contains(byte);
        let (marker, intermediate) = match intermediates {
            [] => (None, None),
            [one] if is_marker(one) => (Some(*one), None),
            [one] => (None, Some(*one)),
            [marker, one] if is_marker(marker) => (Some(*marker), Some(*one)),
            _ => return,
        };

        let Ok(last) = u8::try_from(last) else { return };
        if !is_cut {
            self.sink.csi(&Csi { marker, intermediate, params, last });
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], is_cut: bool, byte: u8) {
        let pending = std::mem::replace(&mut self.state.pending, Pending::None);
        self.end_text();

        match (pending, intermediates) {
            (_, _) if is_cut => {}
            (Pending::Osc(parts), []) if byte == b'\\' => {
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                self.sink.osc(&parts, End::St);
            }
            (Pending::Capabilities(names), []) if byte == b'\\' => self.sink.capabilities(&names),
            (_, []) => self.sink.escape(None, byte),
            (_, [one]) => self.sink.escape(Some(*one), byte),
            _ => {}
        }
    }
}
