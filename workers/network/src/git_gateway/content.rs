//! Content of requests and answers: passed on in pieces, and counted.

use crate::relay::Counts;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Content of a request or an answer.
pub(super) enum Content {
    /// Of quackd itself.
    Text(Bytes),
    Passed {
        from: Incoming,
        counts: Rc<Counts>,
        to_server: bool,
    },
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(Bytes::new())
    }
}

impl Content {
    pub(super) fn from_client(from: Incoming, counts: &Rc<Counts>) -> Self {
        Self::Passed { from, counts: Rc::clone(counts), to_server: true }
    }

    pub(super) fn from_server(from: Incoming, counts: &Rc<Counts>) -> Self {
        Self::Passed { from, counts: Rc::clone(counts), to_server: false }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Text(text) => {
                let text = std::mem::take(text);
                Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
            }
            Self::Passed { from, counts, to_server } => {
                let frame = ready!(Pin::new(from).poll_frame(context));
                if let Some(Ok(frame)) = &frame
                    && let Some(bytes) = frame.data_ref()
                {
                    let count = if *to_server { &counts.sent } else { &counts.received };
                    counts.add(count, bytes);
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Passed { from, .. } => from.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => {
                u64::try_from(text.len()).map_or_else(|_| SizeHint::new(), SizeHint::with_exact)
            }
            Self::Passed { from, .. } => from.size_hint(),
        }
    }
}
