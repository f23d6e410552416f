//! Frames of the supervisor, and reports to it.

use crate::accept::{self, Door};
use crate::credentials::Answer;
use crate::forward::{Forwards, serve_routed};
use crate::own::NearHosts;
use crate::pair::{Pair, watch};
use crate::proxy::Proxy;
use crate::resolver;
use crate::ssh_agent;
use futures_util::{SinkExt, StreamExt};
use quackd_ipc::frames::{self, Decoded};
use quackd_ipc::link::adopt;
use quackd_policy::hosts::Host;
use quackd_policy::upstream::UpstreamProxy;
use quackd_protocol::network::{
    FromProxy, PROXY_PROTOCOL, ProxyStart, SocketKind, TO_PROXY_TAGS, ToProxy,
};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::net::{TcpListener, UdpSocket, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::Framed;

/// Input of the runtime.
pub(crate) struct Started {
    pub(crate) control: OwnedFd,
    pub(crate) settings: ProxyStart,
    /// The pair to the worker, for notes and connections.
    pub(crate) pair: OwnedFd,
    /// Sockets in the order of the settings.
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) near: NearHosts,
    /// For git over https.
    pub(crate) tls: Option<TlsConnector>,
    /// Parts of the confinement that this system does not have.
    pub(crate) notes: Vec<String>,
}

/// Serves the session until the supervisor closes the channel or asks the proxy to exit.
pub(crate) async fn serve(started: Started) -> io::Result<()> {
    let Started { control, settings, pair, sockets, near, tls, notes } = started;
    let mut channel = Framed::new(adopt(control)?, frames::codec());

    let mut proxy = Proxy::new(&settings.rules, Pair::new(pair)?);
    proxy.near = near;
    proxy.tls = tls;
    proxy.label.clone_from(&settings.label);
    proxy.upstream = settings.upstream.as_ref().map(UpstreamProxy::new);
    let proxy = Rc::new(proxy);

    for (kind, socket) in settings.sockets.iter().zip(sockets) {
        open(*kind, socket, &proxy)?;
    }

    let mut forwards = Forwards::default();
    let mut questions = proxy.asks.take_unsent();
    let mut requests = proxy.credentials.take_unsent();
    // The supervisor takes the proxy for ready from here on, so all sockets are served by now.
    send(&mut channel, &FromProxy::Hello { proto: PROXY_PROTOCOL, notes }).await?;
    loop {
        tokio::select! {
            frame = channel.next() => {
                let Some(frame) = frame else { return Ok(()) };
                let (reply, flow) = handle(&frame?, &proxy, &mut forwards)?;
                if let Some(reply) = reply {
                    send(&mut channel, &reply).await?;
                }
                if flow.is_break() {
                    return Ok(());
                }
            }
            Some(question) = next(&mut questions) => send(&mut channel, &question).await?,
            Some(request) = next(&mut requests) => send(&mut channel, &request).await?,
            (entries, dropped) = proxy.log.next() => {
                send(&mut channel, &FromProxy::Log { entries, dropped }).await?;
            }
        }
    }
}

async fn next(frames: &mut Option<mpsc::Receiver<FromProxy>>) -> Option<FromProxy> {
    frames.as_mut()?.recv().await
}

pub(crate) type Channel = Framed<tokio::net::UnixStream, tokio_util::codec::LengthDelimitedCodec>;

pub(crate) async fn send(channel: &mut Channel, frame: &FromProxy) -> io::Result<()> {
    channel.send(frames::encode(frame).map_err(io::Error::other)?).await
}

/// Starts to serve one socket of the worker's network namespace, in a task.
fn open(kind: SocketKind, socket: OwnedFd, proxy: &Rc<Proxy>) -> io::Result<()> {
    // The runtime needs sockets that do not block.
    rustix::io::ioctl_fionbio(&socket, true)?;
    let proxy = Rc::clone(proxy);

    match kind {
        SocketKind::ResolverUdp => {
            let socket = UdpSocket::from_std(socket.into())?;
            tokio::task::spawn_local(resolver::serve_udp(socket, proxy));
        }
        SocketKind::ResolverTcp => {
            let listener = TcpListener::from_std(socket.into())?;
            tokio::task::spawn_local(resolver::serve_tcp(listener, proxy));
        }
        SocketKind::Proxy => {
            let listener = TcpListener::from_std(socket.into())?;
            tokio::task::spawn_local(accept::serve(listener, Door::Proxy, proxy));
        }
        SocketKind::Transparent(port) => {
            let listener = TcpListener::from_std(socket.into())?;
            tokio::task::spawn_local(accept::serve(listener, Door::Transparent(port), proxy));
        }
        SocketKind::SshAgent => {
            let listener = UnixListener::from_std(socket.into())?;
            tokio::task::spawn_local(ssh_agent::serve(listener, proxy));
        }
        SocketKind::Routed => {
            tokio::task::spawn_local(serve_routed(watch(socket)?, proxy));
        }
    }
    Ok(())
}

/// Handles a frame. Returns its reply, and whether it was the last one.
fn handle(
    body: &BytesMut,
    proxy: &Rc<Proxy>,
    forwards: &mut Forwards,
) -> io::Result<(Option<FromProxy>, ControlFlow<()>)> {
    let frame = match frames::decode(body, TO_PROXY_TAGS).map_err(io::Error::other)? {
        Decoded::Known(frame) => frame,
        // A newer supervisor.
        Decoded::Unknown(_) => return Ok((None, ControlFlow::Continue(()))),
    };

    let reply = match frame {
        ToProxy::Rules(rules) => {
            proxy.set_rules(&rules);
            None
        }
        ToProxy::Answered { id, result } => {
            proxy.asks.answered(id, result);
            None
        }
        ToProxy::AllowOnce { host, port } => {
            if let Ok(host) = Host::read(&host) {
                proxy.asks.allow_once(host, port);
            }
            None
        }
        ToProxy::Forward { id, port, local } => {
            let result = forwards.open(id, port, local, proxy);
            Some(FromProxy::Forwarded { id, result })
        }
        ToProxy::CloseForward { id } => {
            forwards.close(id);
            None
        }
        ToProxy::CredentialDone { id, result, used_as } => {
            proxy.credentials.answered(id, Answer { result, used_as });
            None
        }
        ToProxy::ForgetCredentials {} => {
            proxy.credentials.forget();
            None
        }
        ToProxy::LogTaken { n } => {
            proxy.log.taken(n);
            None
        }
        ToProxy::Ping { seq } => {
            // Often enough, without a timer of their own.
            proxy.credentials.expire();
            Some(FromProxy::Pong { seq })
        }
        ToProxy::Shutdown {} => return Ok((None, ControlFlow::Break(()))),
        ToProxy::Start(_) | ToProxy::Route { .. } => {
            return Err(io::Error::other("a second start frame"));
        }
    };
    Ok((reply, ControlFlow::Continue(())))
}
