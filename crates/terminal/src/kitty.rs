//! The keyboard protocol of kitty: flags of one screen, with the stack of a program.

use crate::csi::Csi;

/// Maximum number of flags on a stack. A push onto a full stack drops the oldest.
const MAX_DEPTH: usize = 8;

/// All flags that the protocol has.
const FLAGS: u16 = 31;

/// Flags and stack of one screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kitty {
    base: u8,
    stack: Vec<u8>,
}

impl Kitty {
    /// Returns the flags in effect.
    pub(crate) fn flags(&self) -> u8 {
        self.stack.last().copied().unwrap_or(self.base)
    }

    /// Applies a push, pop or change of flags. Returns false for any other sequence.
    pub(crate) fn apply(&mut self, csi: &Csi<'_>) -> bool {
        let given = u8::try_from(csi.number(0) & FLAGS).unwrap_or(0);
        match csi.name() {
            (Some(b'>'), None, b'u') => {
                if self.stack.len() == MAX_DEPTH {
                    self.stack.remove(0);
                }
                self.stack.push(given);
            }
            (Some(b'<'), None, b'u') => {
                let n = usize::from(csi.number(0).max(1));
                // A pop of more than the stack has resets all flags.
                if self.stack.len() < n {
                    self.base = 0;
                }
                self.stack.truncate(self.stack.len().saturating_sub(n));
            }
            (Some(b'='), None, b'u') => {
                let now = self.flags();
                let flags = match csi.number(1) {
                    0 | 1 => given,
                    2 => now | given,
                    3 => now & !given,
                    _ => now,
                };
                *self.stack.last_mut().unwrap_or(&mut self.base) = flags;
            }
            _ => return false,
        }
        true
    }

    /// Appends sequences that give a screen with any flags these flags and this stack.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("\x1b[<{}u\x1b[={};1u", MAX_DEPTH + 1, self.base).as_bytes());
        for flags in &self.stack {
            out.extend_from_slice(format!("\x1b[>{flags}u").as_bytes());
        }
    }
}
