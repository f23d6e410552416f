//! Reads the values of ssh messages (RFC 4251, section 5). The bytes come from commands and agents, and may be hostile.

/// The unread rest of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SshReader<'a>(&'a [u8]);

impl<'a> SshReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }

    /// Returns the digits of an `mpint` without leading zeros. `None` for a negative number.
    pub(crate) fn positive(&mut self) -> Option<&'a [u8]> {
        let digits = self.string()?;
        if digits.first().is_some_and(|first| 0x80 <= *first) {
            return None;
        }
        digits.get(digits.iter().take_while(|digit| **digit == 0).count()..)
    }

    /// Returns `None` if something is left.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Appends a string to a message. Strings are far shorter than 4 GiB.
pub(crate) fn put_string(message: &mut Vec<u8>, string: &[u8]) {
    let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
    message.extend(length.to_be_bytes());
    message.extend(string);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_order_and_never_beyond_the_end() {
        let mut message = vec![7];
        put_string(&mut message, b"ab");
        put_string(&mut message, &[0, 0, 0x80]);
        let mut reader = SshReader::new(&message);
        assert_eq!((reader.byte(), reader.string()), (Some(7), Some(b"ab".as_slice())));
        assert_eq!(reader.end(), None);
        assert_eq!((reader.positive(), reader.end()), (Some([0x80].as_slice()), Some(())));
        assert_eq!((reader.byte(), reader.number(), reader.string()), (None, None, None));
        for wrong in [&[0, 0, 0, 2, 1][..], &[255; 8], &[0, 0, 0]] {
            assert_eq!(SshReader::new(wrong).string(), None, "{wrong:?}");
        }
        assert_eq!(SshReader::new(&[0, 0, 0, 1, 0x80]).positive(), None);
    }
}
