//! Converts a file's bytes to editable text and back, without loss.
//!
//! Most files are edited as raw bytes, regardless of their encoding. Only UTF-16 is decoded. The decoding is
//! exact: a file that is not completely valid is rejected.

use super::error::SkipReason;
use super::outcome::FileEncoding;
use std::borrow::Cow;

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF16_LE_MARK: &[u8] = b"\xff\xfe";
const UTF16_BE_MARK: &[u8] = b"\xfe\xff";

/// Number of bytes at the start of a file that are checked for NUL bytes, which make the file binary.
const BINARY_LOOK: usize = 8 * 1024;

/// A file without its byte order mark.
#[derive(Debug)]
pub(super) struct Text<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    mark: &'static [u8],
}

impl<'a> Text<'a> {
    /// Decodes a file.
    ///
    /// # Errors
    /// [`SkipReason::MalformedUtf16`]; [`SkipReason::Binary`] if `skip_binary` is set.
    pub(super) fn of(file: &'a [u8], skip_binary: bool) -> Result<Self, SkipReason> {
        let text = if let Some(rest) = file.strip_prefix(UTF16_LE_MARK) {
            Self { bytes: Cow::Owned(decoded(rest, u16::from_le_bytes)?), mark: UTF16_LE_MARK }
        } else if let Some(rest) = file.strip_prefix(UTF16_BE_MARK) {
            Self { bytes: Cow::Owned(decoded(rest, u16::from_be_bytes)?), mark: UTF16_BE_MARK }
        } else if let Some(rest) = file.strip_prefix(UTF8_MARK) {
            Self { bytes: Cow::Borrowed(rest), mark: UTF8_MARK }
        } else {
            Self { bytes: Cow::Borrowed(file), mark: b"" }
        };

        let head = text.bytes.get(..BINARY_LOOK).unwrap_or(&text.bytes);
        if skip_binary && memchr::memchr(0, head).is_some() {
            return Err(SkipReason::Binary);
        }
        Ok(text)
    }

    /// Encodes `edited` in the file's encoding.
    ///
    /// # Errors
    /// [`SkipReason::NotEncodable`].
    pub(super) fn encode(&self, edited: Vec<u8>) -> Result<Vec<u8>, SkipReason> {
        if self.mark.is_empty() {
            return Ok(edited);
        }

        let mut file = self.mark.to_vec();
        match self.mark {
            UTF16_LE_MARK => encode_into(&mut file, &edited, u16::to_le_bytes)?,
            UTF16_BE_MARK => encode_into(&mut file, &edited, u16::to_be_bytes)?,
            _ => file.extend_from_slice(&edited),
        }
        Ok(file)
    }

    /// Encoding of the file.
    pub(super) fn encoding(&self) -> FileEncoding {
        match self.mark {
            UTF16_LE_MARK => FileEncoding::Utf16Le,
            UTF16_BE_MARK => FileEncoding::Utf16Be,
            UTF8_MARK => FileEncoding::Utf8WithMark,
            _ if std::str::from_utf8(&self.bytes).is_ok() => FileEncoding::Utf8,
            _ => FileEncoding::Bytes,
        }
    }
}

fn decoded(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<Vec<u8>, SkipReason> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(SkipReason::MalformedUtf16);
    }
    let chars = char::decode_utf16(pairs.iter().map(|pair| unit(*pair)));
    let text = chars.collect::<Result<String, _>>().map_err(|_| SkipReason::MalformedUtf16)?;
    Ok(text.into_bytes())
}

fn encode_into(
    file: &mut Vec<u8>,
    text: &[u8],
    bytes: fn(u16) -> [u8; 2],
) -> Result<(), SkipReason> {
    let text = std::str::from_utf8(text).map_err(|_| SkipReason::NotEncodable)?;
    file.extend(text.encode_utf16().flat_map(bytes));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_goes_through_unharmed() {
        let utf16 = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
            [mark, &"aé\u{1f986}\r\n".encode_utf16().flat_map(bytes).collect::<Vec<u8>>()].concat()
        };
        let cases = [
            (b"plain\n".to_vec(), FileEncoding::Utf8, "plain\n"),
            (b"\xef\xbb\xbfmark".to_vec(), FileEncoding::Utf8WithMark, "mark"),
            (utf16(UTF16_LE_MARK, u16::to_le_bytes), FileEncoding::Utf16Le, "aé\u{1f986}\r\n"),
            (utf16(UTF16_BE_MARK, u16::to_be_bytes), FileEncoding::Utf16Be, "aé\u{1f986}\r\n"),
            (Vec::new(), FileEncoding::Utf8, ""),
        ];
        for (file, encoding, expected) in cases {
            let text = Text::of(&file, true).unwrap();
            assert_eq!(text.encoding(), encoding);
            assert_eq!(&*text.bytes, expected.as_bytes());
            assert_eq!(text.encode(text.bytes.to_vec()).unwrap(), file);
        }
        assert_eq!(Text::of(b"caf\xe9", true).unwrap().encoding(), FileEncoding::Bytes);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for file in [&b"\xff\xfea"[..], b"\xff\xfe\x00\xd8a\x00", b"\xfe\xff\xdc\x00"] {
            assert_eq!(Text::of(file, true).unwrap_err(), SkipReason::MalformedUtf16);
        }
        let late = [&[b'a'; BINARY_LOOK][..], b"\0"].concat();
        let early = [&[b'a'; BINARY_LOOK - 1][..], b"\0"].concat();
        assert!(Text::of(&late, true).is_ok());
        assert_eq!(Text::of(&early, true).unwrap_err(), SkipReason::Binary);
        assert!(Text::of(&early, false).is_ok());
        // UTF-32 begins like UTF-16.
        assert_eq!(Text::of(b"\xff\xfe\0\0a\0\0\0", true).unwrap_err(), SkipReason::Binary);
        let text = Text::of(b"\xff\xfea\0", true).unwrap();
        assert_eq!(text.encode(vec![0xc3]).unwrap_err(), SkipReason::NotEncodable);
    }
}
