//! Terminals: a background job with a pseudo terminal, which clients attach to. The frames between the supervisor and
//! the worker, the arguments of the internal tool that starts one, and the rows of a screen.
//!
//! The worker keeps the screen. It sends output only while a client is attached and it has a credit
//! ([`crate::limits::TERMINAL_CREDITS`]); otherwise it sends the whole screen later. The supervisor forwards the bytes
//! without parsing them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Arguments of the internal tool [`crate::tools::OPEN_TERMINAL`], as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenTerminal {
    /// Program and arguments. Empty: the user's shell, as `SHELL` in the environment names it.
    pub argv: Vec<String>,
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
    /// Variables of the program in addition to the session's. They win.
    pub env: Vec<(String, String)>,
    /// Most bytes of lines above the screen to keep.
    pub scrollback_bytes: usize,
    /// Whether to record, in the session's run directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Recording>,
    /// Colors of the user's terminal, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colors: Option<TerminalColors>,
}

/// Colors of a client's terminal, for the answers to a program's queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalColors {
    /// Color of text, as `#rrggbb`.
    #[schemars(with = "String")]
    pub fg: RgbColor,
    /// Color of the background.
    #[schemars(with = "String")]
    pub bg: RgbColor,
    /// Color of the cursor.
    #[schemars(with = "String")]
    pub cursor: RgbColor,
}

/// Content of a recording of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Recording {
    /// The output.
    Output,
    /// The output, and what was typed, also passwords.
    Input,
}

/// Data of a successful [`crate::tools::OPEN_TERMINAL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenedTerminal {
    /// The terminal: `term-1`.
    pub terminal_id: String,
    /// Path of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<String>,
}

/// Size of a terminal, in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellSize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// Supervisor to one terminal of the worker. Has no effect on a terminal that has ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToTerminal {
    /// Bytes for the program: at most 32 KiB, in base64 with padding. Answered by exactly one
    /// [`FromTerminal::InputTaken`].
    Input {
        /// JSON text of the base64.
        bytes: Box<RawValue>,
    },
    /// Sets the size. A redraw for all viewers follows.
    Resize(CellSize),
    /// Sets the colors in answers to the program's queries.
    Colors(TerminalColors),
    /// Sets the kinds of viewers that get output. Without viewers, the worker sends no output.
    Watch {
        /// Some viewer gets bytes.
        raw: bool,
        /// Some viewer gets rows.
        rows: bool,
        /// Some viewer gets nothing until it has read what it has, and then needs the whole screen. The end of the
        /// program waits for it, for 2 s at most.
        lagging: bool,
    },
    /// A viewer needs the whole screen. Answered by exactly one [`FromTerminal::Redraw`] or [`FromTerminal::Rows`] with
    /// its number, after which all output is news for it.
    Refresh {
        /// Number of the viewer.
        viewer: u32,
        /// Whether the lines above the screen come first.
        scrollback: bool,
        /// Rows in place of bytes.
        as_rows: bool,
    },
    /// Returns one credit.
    Taken {},
    /// Signals the processes in the foreground of the terminal.
    Signal {
        /// The signal.
        signal: TerminalSignal,
    },
}

/// Signals that a client may send to the program in the foreground of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TerminalSignal {
    /// The window was closed.
    Hup,
    /// Ctrl-C.
    Int,
    /// Ctrl-\.
    Quit,
    /// A request to end.
    Term,
    /// Ends the program in any case.
    Kill,
}

/// One terminal of the worker to the supervisor. A terminal that is new is in a
/// [`Jobs`](crate::worker::FromWorker::Jobs) report before.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromTerminal {
    /// Output of the program. Costs one credit.
    Output {
        /// At most 32 KiB, in base64 with padding, as JSON text.
        bytes: Box<RawValue>,
    },
    /// The whole screen. Costs one credit without a viewer; with one, it answers a [`ToTerminal::Refresh`].
    Redraw {
        /// The viewer that asked. `None`: for all that get bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        viewer: Option<u32>,
        /// Escape sequences that make the screen: at most [`crate::limits::MAX_REDRAW_BYTES`], in base64 with padding,
        /// as JSON text.
        bytes: Box<RawValue>,
        /// Size of the screen.
        size: CellSize,
    },
    /// Rows of the screen. Costs like [`FromTerminal::Redraw`].
    Rows {
        /// As above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        viewer: Option<u32>,
        /// JSON of a [`ScreenRows`], at most [`crate::limits::MAX_ROWS_BYTES`].
        screen: Box<RawValue>,
    },
    /// The program has set another title. Costs one credit.
    Title {
        /// One line, at most [`crate::limits::MAX_TITLE_CHARS`].
        title: String,
    },
    /// The program asks to open an address in the user's browser. Costs one credit.
    Open {
        /// Address of the web: [`crate::foreign_text::is_web_address`].
        address: String,
    },
    /// The program can take another piece of input.
    InputTaken {},
    /// The program has ended, and its output was sent. Last message of the terminal.
    Exited(TerminalExit),
}

/// End of a program on a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminalExit {
    /// Exit code of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Cause, one sentence, if it did not end by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if it ended with the daemon. Only the daemon sets it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub daemon_ends: bool,
}

/// Rows of a screen, for clients without a terminal emulator. No text has a control character.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenRows {
    /// Columns of the screen.
    pub cols: u16,
    /// Rows of the screen.
    pub rows: u16,
    /// Position of the cursor.
    pub cursor: ScreenCursor,
    /// Whether the program shows its alternate screen, as editors do.
    pub alternate: bool,
    /// Whether these are all rows. Otherwise those that have changed.
    pub whole: bool,
    /// The rows.
    pub lines: Vec<ScreenLine>,
}

/// Position of a cursor, from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenCursor {
    /// Row.
    pub row: u16,
    /// Column.
    pub col: u16,
    /// Whether it is shown.
    pub visible: bool,
}

/// One row of a screen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenLine {
    /// Number of the row, from 0.
    pub row: u16,
    /// Text from the left. Cells after it are empty.
    pub runs: Vec<ScreenRun>,
}

/// Text of one style.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenRun {
    /// The text.
    pub text: String,
    /// Style of the whole text.
    #[serde(flatten)]
    pub style: ScreenStyle,
}

/// Style of a text. A color that is absent is the terminal's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScreenStyle {
    /// Color of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fg: Option<ScreenColor>,
    /// Color behind the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bg: Option<ScreenColor>,
    /// Bold.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bold: bool,
    /// Faint.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dim: bool,
    /// Italic.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub italic: bool,
    /// Underlined.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub underline: bool,
    /// Foreground and background are exchanged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inverse: bool,
}

/// A color: a number of the terminal's palette, or `#rrggbb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ScreenColor {
    /// Number in the palette.
    Palette(u8),
    /// `#rrggbb`.
    Rgb(#[schemars(with = "String")] RgbColor),
}

/// A color with 8 bits for each part. Its JSON is `#rrggbb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RgbColor {
    /// Red.
    pub r: u8,
    /// Green.
    pub g: u8,
    /// Blue.
    pub b: u8,
}

impl From<RgbColor> for String {
    fn from(RgbColor { r, g, b }: RgbColor) -> Self {
        format!("#{r:02x}{g:02x}{b:02x}")
    }
}

impl TryFrom<String> for RgbColor {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const EXPECTED: &str = "a color is #rrggbb";
        let digits = text.strip_prefix('#').filter(|digits| {
            digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        let number = u32::from_str_radix(digits.ok_or(EXPECTED)?, 16);
        let [_, r, g, b] = number.map_err(|_error| EXPECTED)?.to_be_bytes();
        Ok(Self { r, g, b })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_text_has_its_style_next_to_the_text() {
        let json = r##"{"text":"a","fg":1,"bg":"#0102ff","bold":true}"##;
        let run: ScreenRun = serde_json::from_str(json).unwrap();
        let bg = ScreenColor::Rgb(RgbColor { r: 1, g: 2, b: 255 });
        let style = ScreenStyle {
            fg: Some(ScreenColor::Palette(1)),
            bg: Some(bg),
            bold: true,
            ..ScreenStyle::default()
        };
        assert_eq!(run, ScreenRun { text: "a".to_owned(), style });
        assert_eq!(serde_json::to_string(&run).unwrap(), json);
        for bad in ["", "#", "#12345", "#1234567", "#gggggg", "red", "#+12345", "#ä1ä1"] {
            assert!(RgbColor::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
