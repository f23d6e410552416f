//! The network proxy of one session: forwards connections of commands to the hosts that rules allow.
//!
//! The supervisor starts it with sockets of the worker's network namespace. It accepts on them, outside of the namespace,
//! and sees every connection of the session's commands. It has no key and no file: an error in it concerns one session.
//! On macOS, it has one socket on the loopback of the machine, the only address that commands reach.
//!
//! In reading order:
//! - [`proxy`]: the rules, and the decision about each request;
//! - [`asks`]: questions to the user about hosts that no rule names;
//! - [`accept`]: connections to the HTTP and SOCKS proxy, and to synthetic addresses;
//! - [`lookups`] and [`dial`]: names outside, the address filter, and the connection to the host;
//! - [`relay`]: copies bytes, and checks the server name of TLS;
//! - [`resolver`]: answers to queries for names;
//! - [`pair`] and [`forward`]: notes to the worker, forwarded ports and routed connections;
//! - [`credentials`], [`ssh_agent`], [`git_gateway`] and [`tls`]: uses of the user's credentials, which commands do not
//!   get;
//! - [`router`]: the other role of this program, without a session: it leads connections to sessions by name;
//! - [`channel`]: frames of the supervisor.
//!
//! Before it reads the first byte of a command, the process gives up files, programs and new processes
//! (`quackd_sandbox::confine::enter_proxy`).

mod accept;
mod asks;
mod channel;
mod credentials;
mod dial;
mod forward;
mod git_gateway;
mod log;
mod lookups;
mod own;
mod pair;
mod proxy;
mod relay;
mod reply;
mod resolver;
mod router;
mod ssh_agent;
mod tls;

use channel::Started;
use own::NearHosts;
use quackd_ipc::first::{read_first_with_descriptors_blocking, write_first_blocking};
use quackd_ipc::link;
use quackd_process::{
    Role, abort_on_panic, complain, die_with_parent, harden, rank_above_parent, set_process_name,
};
use quackd_protocol::network::{
    FromProxy, MAX_PROXY_SOCKETS, PROXY_PROTOCOL, TO_PROXY_TAGS, ToProxy,
};
use quackd_protocol::worker::EXIT_TERMINAL;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

/// Maximum size of the first frame, in bytes: rules of all layers.
const MAX_FIRST_FRAME: usize = 1024 * 1024;

/// Runs as a proxy until the supervisor closes the channel. Called by `quack proxy` before any other code in the process.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    let started = match enter() {
        Ok(started) => started,
        Err(error) => {
            let refusal = FromProxy::CannotStart { reason: error.to_string() };
            // A failed report cannot be handled.
            write_first_blocking(rustix::stdio::stdin(), &refusal).ok();
            complain(&format!("proxy cannot start: {error}"));
            return ExitCode::from(EXIT_TERMINAL);
        }
    };

    match serve(started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("proxy failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Work of this process, by its first frame.
enum Work {
    Proxy(Box<Started>),
    Router(router::Started),
}

/// Does the part of the start that needs a process with one thread.
fn enter() -> io::Result<Work> {
    die_with_parent()?;
    set_process_name("quack-proxy");
    harden(Role::Proxy)?;
    // If memory runs out, the proxy ends before the supervisor.
    rank_above_parent().ok();

    let (first, descriptors) = read_first_with_descriptors_blocking(
        rustix::stdio::stdin(),
        MAX_FIRST_FRAME,
        TO_PROXY_TAGS,
        // With the two pairs.
        MAX_PROXY_SOCKETS + 2,
    )?;

    let mut descriptors = descriptors.into_iter();
    let pair = descriptors.next().ok_or_else(|| io::Error::other("no pair"))?;
    let mut sockets: Vec<OwnedFd> = descriptors.collect();
    let (proto, n_sockets) = match &first {
        ToProxy::Start(settings) => (settings.proto, settings.sockets.len()),
        ToProxy::Route { proto } => (*proto, 1),
        _ => return Err(io::Error::other("another message came first")),
    };

    if proto != PROXY_PROTOCOL {
        let text = format!("the supervisor speaks version {proto}, this program {PROXY_PROTOCOL}");
        return Err(io::Error::other(text));
    }
    if sockets.len() != n_sockets {
        return Err(io::Error::other("the sockets are not those that were announced"));
    }

    let control = link::take_control_channel()?;
    // Before the confinement, after which the file cannot be opened.
    let near = NearHosts::read_blocking();
    let tls = match &first {
        ToProxy::Start(settings) => settings.git.as_ref().map(tls::connector_blocking),
        _ => None,
    };
    let notes = match &first {
        // It gets its connections from the listener, and resolves no name.
        ToProxy::Route { .. } => quackd_sandbox::confine::enter_agent(),
        _ => quackd_sandbox::confine::enter_proxy(),
    };
    let mut notes = notes.map_err(io::Error::other)?;
    let tls = tls.and_then(|made| {
        let note = "git does not use your credentials for https";
        made.map_err(|error| notes.push(format!("{note}: {error}"))).ok()
    });

    if let ToProxy::Start(settings) = first {
        let settings = *settings;
        let started = Started { control, settings, pair, sockets, near, tls, notes };
        return Ok(Work::Proxy(Box::new(started)));
    }

    set_process_name("quack-router");
    let listener = sockets.pop().ok_or_else(|| io::Error::other("no listener"))?;
    Ok(Work::Router(router::Started { control, pair, listener, notes }))
}

fn serve(work: Work) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // They resolve names. A thread that hangs in a resolver keeps its place.
        .max_blocking_threads(lookups::MAX_LOOKUPS)
        // Modules of the resolver may need as much as in other programs.
        .thread_stack_size(1024 * 1024)
        .build()?;

    let local = tokio::task::LocalSet::new();
    let ended = match work {
        Work::Proxy(started) => local.block_on(&runtime, channel::serve(*started)),
        Work::Router(started) => local.block_on(&runtime, router::serve(started)),
    };
    runtime.shutdown_background();
    ended
}
