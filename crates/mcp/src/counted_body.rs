//! The body of a request whose bytes count until it is complete: the bodies of all agents share a budget.
//!
//! Called by [`crate::http`] for requests that have the token.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use quackd_supervision::{Budget, Share};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A body, and its part in the memory for the bodies of all agents.
pub(crate) struct CountedBody<B> {
    body: B,
    share: Share<CancellationToken>,
    refused: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Failure of reading a body to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError<E> {
    #[error(
        "the unfinished requests of all agents need too much memory, and this one most of it for longest"
    )]
    Refused,
    #[error("{0}")]
    Broken(E),
}

impl<B> CountedBody<B> {
    pub(crate) fn new(body: B, budget: &Arc<Budget<CancellationToken>>) -> Self {
        let refused = CancellationToken::new();
        let share = budget.join(refused.clone());
        Self { body, share, refused: Box::pin(refused.cancelled_owned()) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = BodyError<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.refused.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(BodyError::Refused)));
        }

        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            for refused in self.share.add(bytes, Instant::now()) {
                refused.cancel();
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};

    #[tokio::test]
    async fn a_body_is_refused_if_all_need_too_much_memory() {
        const MIB: usize = 1024 * 1024;
        let budget = Budget::new(2 * MIB);
        let body = |size: usize| CountedBody::new(Full::new(vec![0; size].into()), &budget);
        let mut small = body(MIB);
        assert_eq!(small.frame().await.unwrap().unwrap().into_data().unwrap().len(), MIB);
        assert_eq!(budget.bytes(), MIB);
        let mut large = body(3 * MIB);
        assert!(large.frame().await.unwrap().is_ok(), "it is refused with its next frame");
        assert!(matches!(large.frame().await, Some(Err(BodyError::Refused))));
        drop(large);
        assert!(small.frame().await.is_none_or(|it| it.is_err()));
        drop(small);
        assert_eq!(budget.bytes(), 0);
    }
}
