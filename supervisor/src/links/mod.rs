//! Links: `http://PORT.NAME.localhost:43112` leads to a port of a session, so that several sessions may serve on the same
//! port.
//!
//! The listener opens when a client asks for the first link, and stays until the daemon stops. The supervisor binds it
//! and never reads from its connections: the [`router`], a confined process, does.

mod router;
mod routing;

use crate::errors::MethodError;
use crate::registry::{LinkNames, Registry, TakeSnapshot};
use crate::session::actors::ActorTable;
use actix::Addr;
use quackd_protocol::SessionId;
use router::{CloseRouter, Router};
use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;

/// Listener of links. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Links {
    actors: Rc<ActorTable>,
    open: RefCell<Option<Open>>,
    /// The daemon is stopping.
    is_closed: Cell<bool>,
}

#[derive(Debug)]
struct Open {
    address: SocketAddr,
    router: Addr<Router>,
}

impl Links {
    pub(crate) fn new(actors: Rc<ActorTable>) -> Self {
        Self { actors, open: RefCell::new(None), is_closed: Cell::new(false) }
    }

    /// Opens the listener unless it is open.
    ///
    /// # Errors
    /// `LinksOff` if the configuration turns links off, `LinksListen` if the address cannot be used.
    pub(crate) fn open(&self, registry: &Addr<Registry>) -> Result<(), MethodError> {
        if self.port().is_some() {
            return Ok(());
        }
        if self.is_closed.get() {
            return Err(MethodError::ShuttingDown);
        }

        let setting = &self.actors.services.daemon.config.forward.listen.value;
        // `off`. Everything else was checked when the configuration was read.
        let Ok(address) = setting.parse::<SocketAddr>() else { return Err(MethodError::LinksOff) };

        // The port of the setting may be 0, so the links have that of the listener.
        let (address, listener) = TcpListener::bind(address)
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|source| MethodError::LinksListen { address, source })?;

        let router = Router::start_for(Rc::clone(&self.actors), registry.clone(), listener);
        tracing::info!(%address, "opened the listener of links");
        self.open.replace(Some(Open { address, router }));
        Ok(())
    }

    /// Returns the port of the open listener. `None` before the first link, and after a router that
    /// failed for good.
    fn port(&self) -> Option<u16> {
        let open = self.open.borrow();
        open.as_ref().filter(|open| open.router.connected()).map(|open| open.address.port())
    }

    /// Returns what builds links. `None` unless the listener is open.
    pub(crate) async fn builder(&self, registry: &Addr<Registry>) -> Option<LinkBuilder> {
        let port = self.port()?;
        let names = registry.send(TakeSnapshot).await.ok()?.link_names();
        Some(LinkBuilder { names, port })
    }

    /// Closes the listener and waits for the end of the router.
    pub(crate) async fn close(&self) {
        // A link that is requested now must not open the listener again.
        self.is_closed.set(true);
        let Some(open) = self.open.take() else { return };
        // The router's actor may have ended already.
        open.router.send(CloseRouter).await.ok();
    }
}

/// Builds links at one moment.
#[derive(Debug)]
pub(crate) struct LinkBuilder {
    names: LinkNames,
    port: u16,
}

impl LinkBuilder {
    /// Returns the link to a port of a session. `None` if the session was deleted, or has no name
    /// for a host.
    pub(crate) fn link(&self, session: &SessionId, port: u16) -> Option<String> {
        let name = self.names.of_session(session)?;
        Some(format!("http://{port}.{name}.localhost:{}", self.port))
    }
}
