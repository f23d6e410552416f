//! Limits the unanswered requests of clients, in number and in bytes.

use quackd_protocol::limits::{
    CLIENT_REQUEST_BYTES, FREE_REQUEST_BYTES, MAX_CLIENT_REQUESTS, MAX_REQUEST_BYTES,
};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of the unanswered requests of all clients.
#[derive(Debug, Clone)]
pub(crate) struct RequestMemory(Arc<Semaphore>);

impl Default for RequestMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_REQUEST_BYTES)))
    }
}

/// Unanswered requests of one client.
#[derive(Debug)]
pub(crate) struct Unanswered {
    concurrent: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    all: RequestMemory,
}

/// Room for one request. Dropped when it is answered.
#[derive(Debug)]
pub(crate) struct RequestRoom {
    _bytes: OwnedSemaphorePermit,
    _all: Option<OwnedSemaphorePermit>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Unanswered {
    /// No request yet. `all` counts those of all clients.
    pub(crate) fn new(all: &RequestMemory) -> Self {
        let concurrent = Arc::new(Semaphore::new(MAX_CLIENT_REQUESTS));
        let bytes = Arc::new(Semaphore::new(CLIENT_REQUEST_BYTES));
        Self { concurrent, bytes, all: all.clone() }
    }

    /// Waits until this client has room for a request of `bytes` bytes, and for one more that is `concurrent`: answered
    /// out of order. Returns `None` without waiting for other clients if the requests of all need too much memory.
    pub(crate) async fn room(&self, bytes: usize, concurrent: bool) -> Option<RequestRoom> {
        // A line has at most a quarter of the bytes of a client.
        let n = u32::try_from(bytes.min(CLIENT_REQUEST_BYTES)).ok()?;
        let own = Arc::clone(&self.bytes).acquire_many_owned(n).await.ok()?;

        let used = CLIENT_REQUEST_BYTES - self.bytes.available_permits();
        let all = if used <= FREE_REQUEST_BYTES {
            None
        } else {
            Some(Arc::clone(&self.all.0).try_acquire_many_owned(n).ok()?)
        };

        let slot = if concurrent {
            Some(Arc::clone(&self.concurrent).acquire_owned().await.ok()?)
        } else {
            None
        };
        Some(RequestRoom { _bytes: own, _all: all, _slot: slot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const LARGE: usize = CLIENT_REQUEST_BYTES / 4;

    #[actix::test]
    async fn one_client_waits_for_its_own_room_and_leaves_room_for_others() {
        let all = RequestMemory::default();
        let (a, b) = (Unanswered::new(&all), Unanswered::new(&all));
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(a.room(LARGE, true).await.unwrap());
        }
        assert!(a.room(1, true).now_or_never().is_none(), "a client may not hold more");
        assert!(b.room(LARGE, true).now_or_never().flatten().is_some());
        held.pop();
        assert!(a.room(1, true).now_or_never().flatten().is_some());
    }

    #[actix::test]
    async fn large_requests_are_refused_when_those_of_all_clients_need_too_much() {
        let all = RequestMemory::default();
        let mut held = Vec::new();
        for _ in 0..MAX_REQUEST_BYTES / CLIENT_REQUEST_BYTES {
            let client = Unanswered::new(&all);
            for _ in 0..4 {
                held.push(client.room(LARGE, true).await.unwrap());
            }
        }
        let one_more = Unanswered::new(&all);
        assert!(one_more.room(LARGE, true).await.is_none());
        // Small ones have their own room.
        let small = one_more.room(FREE_REQUEST_BYTES, true).await.unwrap();
        assert!(one_more.room(1, true).await.is_none());
        drop(small);
        assert!(one_more.room(1, true).await.is_some());
        held.pop();
        assert!(one_more.room(LARGE, true).await.is_some());
    }
}
