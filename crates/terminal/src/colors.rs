//! Colors in answers to queries: light gray on black until a client reports those of its terminal, and the palette of
//! xterm.

use quackd_protocol::terminal::{RgbColor, TerminalColors};

/// Color of text and of the cursor.
const FOREGROUND: RgbColor = RgbColor { r: 229, g: 229, b: 229 };

/// Colors of a terminal that no client has reported.
pub(crate) const DEFAULT_COLORS: TerminalColors =
    TerminalColors { fg: FOREGROUND, bg: RgbColor { r: 0, g: 0, b: 0 }, cursor: FOREGROUND };

/// The first 16 colors of xterm.
const NAMED: [u32; 16] = [
    0x00_0000, 0xcd_0000, 0x00_cd00, 0xcd_cd00, 0x00_00ee, 0xcd_00cd, 0x00_cdcd, 0xe5_e5e5,
    0x7f_7f7f, 0xff_0000, 0x00_ff00, 0xff_ff00, 0x5c_5cff, 0xff_00ff, 0x00_ffff, 0xff_ffff,
];

/// Returns the color of xterm's palette with this index: 16 named colors, a cube of 216, 24 grays.
pub(crate) fn palette(index: u8) -> RgbColor {
    if let Some(color) = NAMED.get(usize::from(index)) {
        let [_, r, g, b] = color.to_be_bytes();
        return RgbColor { r, g, b };
    }
    if 232 <= index {
        let gray = 8 + 10 * (index - 232);
        return RgbColor { r: gray, g: gray, b: gray };
    }

    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    let at = index - 16;
    RgbColor { r: level(at / 36), g: level(at / 6 % 6), b: level(at % 6) }
}
