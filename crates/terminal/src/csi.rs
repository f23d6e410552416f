//! One control sequence, and the allow-list of sequences that only draw. Screen and filter use the same list and write
//! each sequence again from its parsed parameters.

use crate::sequence::write;
use crate::sgr;

/// Highest parameter that a drawing sequence keeps. Larger than any terminal.
const MAX_COUNT: u16 = 1000;

/// A parsed control sequence: `ESC [`, the marker, parameters, the intermediate and the final byte.
pub(crate) struct Csi<'a> {
    /// One of `<`, `=`, `>` and `?`.
    pub(crate) marker: Option<u8>,
    pub(crate) intermediate: Option<u8>,
    /// Parameters with their subparameters. A parameter that was left out is 0.
    pub(crate) params: &'a vte::Params,
    /// Final byte.
    pub(crate) last: u8,
}

impl Csi<'_> {
    /// Marker, intermediate and final byte, which name the sequence.
    pub(crate) fn name(&self) -> (Option<u8>, Option<u8>, u8) {
        (self.marker, self.intermediate, self.last)
    }

    /// Returns the parameter at `index`, or 0.
    pub(crate) fn number(&self, index: usize) -> u16 {
        self.params.iter().nth(index).and_then(|it| it.first().copied()).unwrap_or(0)
    }

    /// Returns the first number of each parameter.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.params.iter().filter_map(|it| it.first().copied())
    }

    /// Returns true if at most `n` parameters are given.
    fn has_at_most(&self, n: usize) -> bool {
        self.params.len() <= n
    }
}

/// Effect of a drawing sequence.
pub(crate) enum Drawing {
    /// Styles of the following text.
    Style,
    /// Tabulator steps: forward if true.
    Tabs { count: u16, is_forward: bool },
    /// Saves the cursor.
    Save,
    /// Restores the cursor.
    Restore,
    /// Another one with the final byte and its parameters.
    Other { last: char, numbers: [u16; 2], n: usize },
}

/// Returns what `csi` draws, or `None` for a sequence that is not in the list. Never allows the erasure of the lines
/// above the screen (`3 J`): they belong to the user.
pub(crate) fn drawing(csi: &Csi<'_>) -> Option<Drawing> {
    let count = csi.number(0).clamp(1, MAX_COUNT);
    let one = |last: u8| Drawing::Other { last: char::from(last), numbers: [count, 0], n: 1 };

    match csi.name() {
        (None, None, b'm') => Some(Drawing::Style),
        (None, None, b'I') => Some(Drawing::Tabs { count, is_forward: true }),
        (None, None, b'Z') => Some(Drawing::Tabs { count, is_forward: false }),
        (None, None, b's') if csi.has_at_most(1) && csi.number(0) == 0 => Some(Drawing::Save),
        (None, None, b'u') if csi.has_at_most(1) && csi.number(0) == 0 => Some(Drawing::Restore),
        (None, None, b'H' | b'f') => {
            let column = csi.number(1).clamp(1, MAX_COUNT);
            Some(Drawing::Other { last: 'H', numbers: [count, column], n: 2 })
        }
        (None | Some(b'?'), None, b'J' | b'K') if csi.number(0) <= 2 => {
            let last = char::from(csi.last);
            Some(Drawing::Other { last, numbers: [csi.number(0), 0], n: 1 })
        }
        (None, None, b'a') => Some(one(b'C')),
        (None, None, b'e') => Some(one(b'B')),
        (None, None, b'`') => Some(one(b'G')),
        // With more parameters, `T` tracks the mouse.
        (None, None, b'T') if !csi.has_at_most(1) => None,
        #[rustfmt::skip]
        (None, None, b'@' | b'A'..=b'G' | b'L' | b'M' | b'P' | b'S' | b'T' | b'X' | b'b' | b'd') => {
            Some(one(csi.last))
        },
        _ => None,
    }
}

/// Appends the sequence of `drawing`, as all terminals understand it. `csi` has the styles.
pub(crate) fn write_drawing(csi: &Csi<'_>, drawing: &Drawing, out: &mut Vec<u8>) {
    match drawing {
        Drawing::Style => sgr::write_all(csi.params, out),
        Drawing::Tabs { count, is_forward: true } => write(out, "", &[*count], "I"),
        Drawing::Tabs { count, is_forward: false } => write(out, "", &[*count], "Z"),
        Drawing::Save => out.extend_from_slice(b"\x1b7"),
        Drawing::Restore => out.extend_from_slice(b"\x1b8"),
        Drawing::Other { last, numbers, n } => {
            write(out, "", numbers.get(..*n).unwrap_or_default(), last.encode_utf8(&mut [0; 4]));
        }
    }
}
