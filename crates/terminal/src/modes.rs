//! Modes of a terminal that a program may change, with the sequences that set or undo them. Screen and filter track the
//! same modes.

use crate::csi::Csi;
use crate::kitty::Kitty;

/// Modes that are only on or off, with the value of a new terminal: cursor keys, wrap, blinking cursor, visible cursor,
/// mouse (three kinds), focus, mouse in SGR form, bracketed paste, synchronized output.
const SWITCHES: [(u16, bool); 11] = [
    (1, false),
    (7, true),
    (12, false),
    (25, true),
    (1000, false),
    (1002, false),
    (1003, false),
    (1004, false),
    (1006, false),
    (2004, false),
    (2026, false),
];

/// Kinds of mouse tracking. At most one is on, as in xterm.
const MOUSE: [u16; 3] = [1000, 1002, 1003];

/// Sequences of [`Modes::soft_reset`]. Setting the region moves the cursor, so the cursor is saved before and restored
/// after it.
pub(crate) const SOFT_RESET: &[u8] =
    b"\x1b7\x1b[r\x1b8\x1b[m\x1b[?1l\x1b[?7h\x1b[?25h\x1b>\x1b(B\x1b)B\x0f";

/// Kind of a known mode: the caller of [`Modes::switch`] does all except the change of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It is a switch, which [`Modes::switch`] has changed.
    Switch,
    /// It selects the alternate or the main screen. `saves` also saves the cursor and clears the alternate screen.
    Alternate { saves: bool },
    /// It saves or restores the cursor.
    Cursor,
}

/// Modes of one terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Modes {
    /// Switches that are on, by their position in the table.
    on: u16,
    /// Kinds of mouse tracking that were switched on, and not off by their own number. Some terminals keep each of them
    /// until then.
    mouse: u16,
    /// Shape of the cursor: 0 is the terminal's own, up to 6.
    pub(crate) shape: u8,
    /// First and last row of the scroll region, from 0, if a program set it.
    pub(crate) region: Option<Region>,
    /// Whether the keypad is in application mode.
    pub(crate) keypad: bool,
    pub(crate) is_alternate: bool,
    pub(crate) main: Kitty,
    pub(crate) alternate: Kitty,
    /// Whether G0 and G1 have line drawing characters, and whether G1 is in use.
    pub(crate) charsets: Charsets,
}

/// Rows between which text scrolls. Both are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) top: u16,
    pub(crate) bottom: u16,
}

/// The character sets of a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Charsets {
    is_g0_lines: bool,
    is_g1_lines: bool,
    is_g1_used: bool,
}

impl Charsets {
    /// Returns true if letters are line drawing characters now.
    pub(crate) fn draws_lines(self) -> bool {
        if self.is_g1_used { self.is_g1_lines } else { self.is_g0_lines }
    }

    /// Applies SO or SI. Returns false for another control.
    pub(crate) fn shift(&mut self, control: u8) -> bool {
        if matches!(control, 0x0e | 0x0f) {
            self.is_g1_used = control == 0x0e;
        }
        matches!(control, 0x0e | 0x0f)
    }

    /// Applies a designation of ASCII or line drawing. Returns false for another escape sequence.
    pub(crate) fn designate(&mut self, intermediate: Option<u8>, byte: u8) -> bool {
        let is_lines = match byte {
            b'0' => true,
            b'B' => false,
            _ => return false,
        };
        match intermediate {
            Some(b'(') => self.is_g0_lines = is_lines,
            Some(b')') => self.is_g1_lines = is_lines,
            _ => return false,
        }
        true
    }

    /// Appends sequences that select these sets on a terminal with any sets.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let name = |is_lines: bool| if is_lines { '0' } else { 'B' };
        let shift = if self.is_g1_used { '\x0e' } else { '\x0f' };
        let (g0, g1) = (name(self.is_g0_lines), name(self.is_g1_lines));
        out.extend_from_slice(format!("\x1b({g0}\x1b){g1}{shift}").as_bytes());
    }
}

impl Default for Modes {
    fn default() -> Self {
        let mut modes = Self {
            on: 0,
            mouse: 0,
            shape: 0,
            region: None,
            keypad: false,
            is_alternate: false,
            main: Kitty::default(),
            alternate: Kitty::default(),
            charsets: Charsets::default(),
        };

        for (mode, is_on) in SWITCHES {
            modes.set(mode, is_on);
        }

        modes
    }
}

impl Modes {
    fn bit(mode: u16) -> u16 {
        SWITCHES.iter().position(|(known, _)| *known == mode).map_or(0, |at| 1 << at)
    }

    pub(crate) fn is_on(&self, mode: u16) -> bool {
        self.on & Self::bit(mode) != 0
    }

    fn set(&mut self, mode: u16, is_on: bool) {
        if is_on {
            self.on |= Self::bit(mode);
        } else {
            self.on &= !Self::bit(mode);
        }
    }

    /// The keyboard on the screen in use.
    pub(crate) fn kitty(&mut self) -> &mut Kitty {
        if self.is_alternate { &mut self.alternate } else { &mut self.main }
    }

    /// Flags of the keyboard on the screen in use.
    pub(crate) fn flags(&self) -> u8 {
        if self.is_alternate { self.alternate.flags() } else { self.main.flags() }
    }

    /// Returns the answer to a query for a private mode: 0 for an unknown one, 1 for on, 2 for off.
    pub(crate) fn report(&self, mode: u16) -> u8 {
        let is_on = match mode {
            47 | 1047 | 1049 => self.is_alternate,
            mode if Self::bit(mode) == 0 => return 0,
            mode => self.is_on(mode),
        };
        if is_on { 1 } else { 2 }
    }

    /// Applies one private mode. Returns its kind, or `None` for a mode that is not allowed.
    pub(crate) fn switch(&mut self, mode: u16, is_on: bool) -> Option<Mode> {
        match mode {
            47 | 1047 | 1049 => {
                self.is_alternate = is_on;
                Some(Mode::Alternate { saves: mode == 1049 })
            }
            1048 => Some(Mode::Cursor),
            mode if Self::bit(mode) == 0 => None,
            mode => {
                if MOUSE.contains(&mode) {
                    MOUSE.iter().for_each(|kind| self.set(*kind, false));
                    let bit = Self::bit(mode);
                    self.mouse = if is_on { self.mouse | bit } else { self.mouse & !bit };
                }
                self.set(mode, is_on);
                Some(Mode::Switch)
            }
        }
    }

    /// Applies `CSI … SP q`, if `csi` is that sequence. Returns false otherwise.
    pub(crate) fn shape_cursor(&mut self, csi: &Csi<'_>) -> bool {
        let shape = csi.number(0);
        if csi.name() != (None, Some(b' '), b'q') || 6 < shape {
            return false;
        }
        self.shape = u8::try_from(shape).unwrap_or(0);
        true
    }

    /// Applies a soft reset: modes of the display, region, keypad and character sets.
    pub(crate) fn soft_reset(&mut self) {
        let fresh = Self::default();
        for (mode, normal) in SWITCHES.iter().filter(|(mode, _)| matches!(mode, 1 | 7 | 25)) {
            self.set(*mode, *normal);
        }
        (self.region, self.keypad, self.charsets) = (fresh.region, fresh.keypad, fresh.charsets);
    }

    /// Appends the sequences that set all switches, shape and keypad on a terminal in any state.
    pub(crate) fn write_all(&self, out: &mut Vec<u8>) {
        // Kinds of mouse tracking end each other.
        let off = SWITCHES.iter().filter(|(mode, _)| !self.is_on(*mode));
        let on = SWITCHES.iter().filter(|(mode, _)| self.is_on(*mode));
        for (mode, _) in off.chain(on) {
            out.extend_from_slice(switch(*mode, self.is_on(*mode)).as_bytes());
        }
        out.extend_from_slice(format!("\x1b[{} q", self.shape).as_bytes());
        out.extend_from_slice(if self.keypad { b"\x1b=" } else { b"\x1b>" });
    }

    /// Appends the sequences that return switches, shape and keypad to those of a new terminal.
    pub(crate) fn write_undone(&self, out: &mut Vec<u8>) {
        for kind in MOUSE.iter().rev().filter(|kind| self.mouse & Self::bit(**kind) != 0) {
            out.extend_from_slice(switch(*kind, false).as_bytes());
        }
        for (mode, normal) in SWITCHES {
            if self.is_on(mode) != normal && !MOUSE.contains(&mode) {
                out.extend_from_slice(switch(mode, normal).as_bytes());
            }
        }

        // The terminal's own shape has its own blinking.
        if self.shape != 0 || self.is_on(12) {
            out.extend_from_slice(b"\x1b[0 q");
        }
        if self.keypad {
            out.extend_from_slice(b"\x1b>");
        }
    }
}

/// Returns the sequence that switches a private mode.
pub(crate) fn switch(mode: u16, is_on: bool) -> String {
    format!("\x1b[?{mode}{}", if is_on { 'h' } else { 'l' })
}
