//! The thread `remote`: a separate runtime for remote control.
//!
//! [`crate::Remote`] starts it when remote control is enabled for the first time. It stops, with all its
//! tasks, when the last sender of commands is dropped.

use crate::server::Server;
use crate::settings::Settings;
use crate::{ApplyError, Ask, Pages};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;

/// Threads for blocking work: slow token checks, name resolution, and reading histories and certificates.
const BLOCKING_THREADS: usize = 8;

/// Capacity of the command channel. Every sender waits for its result.
const MAX_COMMANDS: usize = 8;

/// Command of the supervisor, with the sender of its answer.
#[derive(Debug)]
pub(crate) enum ServerCommand {
    Apply { settings: Box<Settings>, answer: oneshot::Sender<Result<u16, ApplyError>> },
    Port(oneshot::Sender<Option<u16>>),
    Close(oneshot::Sender<()>),
}

/// Starts the thread, which ends when the returned sender is dropped.
pub(crate) fn start(
    asks: mpsc::Sender<Ask>,
    connected: Arc<AtomicUsize>,
    is_token_short: Arc<AtomicBool>,
    pages: watch::Receiver<Pages>,
) -> io::Result<mpsc::Sender<ServerCommand>> {
    let (sender, commands) = mpsc::channel(MAX_COMMANDS);
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("remote-files")
        .build()?;

    std::thread::Builder::new().name("remote".to_owned()).spawn(move || {
        let server = Server::new(asks, connected, is_token_short, pages);
        LocalSet::new().block_on(&runtime, serve(server, commands));
        runtime.shutdown_background();
    })?;
    Ok(sender)
}

/// Runs one command at a time.
async fn serve(mut server: Server, mut commands: mpsc::Receiver<ServerCommand>) {
    while let Some(command) = commands.recv().await {
        // A failed answer means that the caller stopped waiting.
        match command {
            ServerCommand::Apply { settings, answer } => {
                let applied = server.apply(*settings).await;
                answer.send(applied).ok();
            }
            ServerCommand::Port(answer) => {
                answer.send(server.port()).ok();
            }
            ServerCommand::Close(answer) => {
                server.close().await;
                answer.send(()).ok();
            }
        }
    }
}
