//! Input that a client sends to a command of one of its calls. The session takes a piece when its worker requests it, so
//! that one piece at a time waits here.

use quackd_protocol::output::InputPiece;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};

/// A piece, and the sender of its reply: whether the command takes another one. Dropping it is the reply that it does not.
#[derive(Debug)]
pub(crate) struct InputRequest {
    pub(crate) piece: InputPiece,
    pub(crate) taken: oneshot::Sender<bool>,
}

/// Sender of a call's input. Closed when the call has ended.
pub(crate) type InputSender = mpsc::Sender<InputRequest>;

/// The input of a call. Clones share it: a call that runs again goes on reading.
#[derive(Debug, Clone)]
pub(crate) struct CallInput(Arc<Mutex<mpsc::Receiver<InputRequest>>>);

/// Creates the input of a call.
pub(crate) fn call_input() -> (InputSender, CallInput) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, CallInput(Arc::new(Mutex::new(receiver))))
}

impl CallInput {
    /// Waits for the next piece. `None` if the client can send no more.
    pub(crate) async fn next(&self) -> Option<InputRequest> {
        self.0.lock().await.recv().await
    }

    /// Refuses all further pieces.
    pub(crate) fn close(&self) {
        // Locked only while a piece is awaited, and then none is refused.
        if let Ok(mut receiver) = self.0.try_lock() {
            receiver.close();
        }
    }
}
