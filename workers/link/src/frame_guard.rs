//! Whole frames out of a stream from the far side. The supervisor trusts reports about the link, so that the far side must
//! not send them, and the link process adds its own between two frames.

use crate::packet::Violation;
use bytes::BytesMut;
use quackd_protocol::limits::MAX_LINE_BYTES;

/// Length of the length of a frame, in bytes.
const PREFIX: usize = 4;

/// Tag of the frames that only the link process sends.
const LINK: &[u8] = b"link";

/// The beginning of a frame whose end has not arrived.
#[derive(Debug, Default)]
pub(crate) struct FrameGuard {
    partial: BytesMut,
}

impl FrameGuard {
    /// Appends the frames that `bytes` complete to `out`.
    pub(crate) fn pass(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), Violation> {
        self.partial.extend_from_slice(bytes);
        while let Some((prefix, rest)) = self.partial.split_first_chunk::<PREFIX>() {
            let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
            if MAX_LINE_BYTES < length {
                return Err(Violation::Frame);
            }
            let Some(body) = rest.get(..length) else { return Ok(()) };
            check(body)?;
            out.extend_from_slice(&self.partial.split_to(PREFIX + length));
        }
        Ok(())
    }
}

/// Checks the tag. A worker writes no white space and no escapes before and in it, so that other spellings are refused.
fn check(body: &[u8]) -> Result<(), Violation> {
    let tag = body.strip_prefix(b"{\"").ok_or(Violation::Frame)?;
    let length = tag.iter().take_while(|b| b.is_ascii_lowercase() || **b == b'_').count();
    match tag.split_at_checked(length) {
        Some((LINK, _)) => Err(Violation::Link),
        Some((_, [b'"', b':', ..])) => Ok(()),
        _ => Err(Violation::Frame),
    }
}

/// Returns a body with the length before it.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [length.to_be_bytes().as_slice(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_frames_pass_however_they_are_cut() {
        let bodies = [
            r#"{"pong":{"seq":1}}"#,
            r#"{"tool_finished":{}}"#,
            r#"{"warning":{"text":"{\"link"}}"#,
        ];
        let bytes: Vec<u8> = bodies.iter().flat_map(|body| framed(body.as_bytes())).collect();
        for piece in [1, 5, 19, bytes.len()] {
            let (mut guard, mut out, mut n_in) = (FrameGuard::default(), BytesMut::new(), 0);
            for bytes in bytes.chunks(piece) {
                guard.pass(bytes, &mut out).unwrap();
                n_in += bytes.len();
                assert_eq!(out.len() + guard.partial.len(), n_in);
            }
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn the_far_side_cannot_report_about_the_link() {
        for (body, violation) in [
            (r#"{"link":{"resumed":{}}}"#, Violation::Link),
            (r#"{"link" :{}}"#, Violation::Link),
            (r#"{ "link":{}}"#, Violation::Frame),
            (r#"{"l\u0069nk":{}}"#, Violation::Frame),
            (r#""link""#, Violation::Frame),
            ("", Violation::Frame),
        ] {
            let passed = FrameGuard::default().pass(&framed(body.as_bytes()), &mut BytesMut::new());
            assert_eq!(passed, Err(violation), "{body}");
        }
        let long = u32::try_from(MAX_LINE_BYTES + 1).unwrap().to_be_bytes();
        let passed = FrameGuard::default().pass(&long, &mut BytesMut::new());
        assert_eq!(passed, Err(Violation::Frame));
    }
}
