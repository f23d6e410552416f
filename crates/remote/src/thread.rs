//! The thread `remote`: one small runtime that holds everything of remote control, away from the actors.
//!
//! Started by [`crate::Remote`] when remote control is enabled for the first time. Ends, and everything on
//! it, when the last sender of commands is gone.

use crate::server::Server;
use crate::settings::Settings;
use crate::{ApplyError, Ask, MAX_COMMANDS};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// Threads for what blocks: checking a token slowly, looking up the name to listen on, reading a history or
/// a certificate.
const BLOCKING_THREADS: usize = 8;

/// What the supervisor wants.
#[derive(Debug)]
pub(crate) enum Command {
    Apply { settings: Box<Settings>, answer: oneshot::Sender<Result<u16, ApplyError>> },
    Port(oneshot::Sender<Option<u16>>),
    Close(oneshot::Sender<()>),
}

/// Starts the thread.
pub(crate) fn start(
    asks: mpsc::Sender<Ask>,
    connected: Arc<AtomicUsize>,
    is_token_short: Arc<AtomicBool>,
) -> io::Result<mpsc::Sender<Command>> {
    let (sender, commands) = mpsc::channel(MAX_COMMANDS);
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("remote-files")
        .build()?;
    std::thread::Builder::new().name("remote".to_owned()).spawn(move || {
        let server = Server::new(asks, connected, is_token_short);
        LocalSet::new().block_on(&runtime, serve(server, commands));
        runtime.shutdown_background();
    })?;
    Ok(sender)
}

/// Does one command after the other. Who has asked may be gone when it is done.
async fn serve(mut server: Server, mut commands: mpsc::Receiver<Command>) {
    while let Some(command) = commands.recv().await {
        match command {
            Command::Apply { settings, answer } => {
                let applied = server.apply(*settings).await;
                answer.send(applied).ok();
            }
            Command::Port(answer) => {
                answer.send(server.port()).ok();
            }
            Command::Close(answer) => {
                server.close().await;
                answer.send(()).ok();
            }
        }
    }
}
