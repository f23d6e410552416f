//! Colors in answers to queries: those of the latest writer's terminal, and the palette of xterm.

/// Color with 8 bits for each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rgb {
    /// Red.
    pub r: u8,
    /// Green.
    pub g: u8,
    /// Blue.
    pub b: u8,
}

/// Colors of the terminal of the latest writer, for answers to queries. Light gray on black by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colors {
    /// Color of text.
    pub foreground: Rgb,
    /// Color of the background.
    pub background: Rgb,
    /// Color of the cursor.
    pub cursor: Rgb,
}

impl Default for Colors {
    fn default() -> Self {
        let gray = Rgb { r: 229, g: 229, b: 229 };
        Self { foreground: gray, background: Rgb { r: 0, g: 0, b: 0 }, cursor: gray }
    }
}

/// The first 16 colors of xterm.
const NAMED: [u32; 16] = [
    0x00_0000, 0xcd_0000, 0x00_cd00, 0xcd_cd00, 0x00_00ee, 0xcd_00cd, 0x00_cdcd, 0xe5_e5e5,
    0x7f_7f7f, 0xff_0000, 0x00_ff00, 0xff_ff00, 0x5c_5cff, 0xff_00ff, 0x00_ffff, 0xff_ffff,
];

/// Returns the color of xterm's palette with this index: 16 named colors, a cube of 216, 24 grays.
pub(crate) fn palette(index: u8) -> Rgb {
    if let Some(color) = NAMED.get(usize::from(index)) {
        let [_, r, g, b] = color.to_be_bytes();
        return Rgb { r, g, b };
    }
    if 232 <= index {
        let gray = 8 + 10 * (index - 232);
        return Rgb { r: gray, g: gray, b: gray };
    }

    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    let at = index - 16;
    Rgb { r: level(at / 36), g: level(at / 6 % 6), b: level(at % 6) }
}
