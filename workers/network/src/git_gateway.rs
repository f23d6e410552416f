//! Git over https with credentials of the user, which commands do not get. Git's settings in the session lead addresses of
//! https to this part of the proxy ([`GIT_GATEWAY_PREFIX`]). It serves the requests of git and of Git LFS only, connects to
//! the server by the rules of hosts, and adds the credential of the repository where the server asks for one.

mod content;
mod target;

use crate::credentials::{Answer, Known};
use crate::dial::{DialError, dial};
use crate::proxy::{Admitted, Proxy, Request, Slot};
use crate::relay::{Counts, Ends, IDLE, ends, until_idle, until_revoked};
use crate::reply::Refusal;
use content::Content;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode, client, server};
use hyper_util::rt::TokioIo;
use quackd_protocol::credentials::{
    CredentialAnswer, CredentialRefusal, CredentialRequest, CredentialUse, Repository,
};
use quackd_protocol::network::{DenyReason, FailReason, RequestPath, Verdict};
use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{self, Cursor};
use std::rc::Rc;
use std::time::{Duration, Instant};
use target::{Service, Target, location_inside};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time for the first messages of TLS.
const TLS_TIME: Duration = Duration::from_secs(10);

/// Maximum size of a buffer of a connection, in bytes.
const BUFFER: usize = 64 * 1024;

/// Fields of a request that the server gets.
const TO_SERVER: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "content-encoding",
    "content-type",
    "git-protocol",
    "user-agent",
];

/// Fields of an answer that git gets. Not the question for a password: git would ask its user inside.
const TO_CLIENT: &[&str] = &["cache-control", "content-encoding", "content-type"];

/// End of the error of a server whose certificate is refused.
const ABOUT_CERTIFICATES: &str =
    "; quackd trusts the certificates of the machine, or those of SSL_CERT_FILE of the daemon";

/// Whether the first bytes of a connection are a request to this part of the proxy.
pub(crate) fn is_for(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GET /https/") || bytes.starts_with(b"POST /https/")
}

/// One request, and what it needs until its connection ends.
struct Exchange<'a> {
    proxy: &'a Proxy,
    slot: RefCell<Option<Slot>>,
    /// The request to the server, once the rules admit it.
    admitted: RefCell<Option<(Request, Admitted)>>,
    /// Gets the addresses of each connection to the server.
    connected: mpsc::Sender<Ends>,
    counts: Rc<Counts>,
    /// Connections to the server. They end with this exchange.
    connections: RefCell<JoinSet<()>>,
}

/// Serves one request and closes the connection. `bytes` were read already. `None` if the connection broke.
pub(crate) async fn serve(
    client: TcpStream,
    bytes: Vec<u8>,
    proxy: &Proxy,
    slot: Slot,
) -> Option<()> {
    let (started, counts) = (Instant::now(), Rc::new(Counts::new()));
    let (connected, ends) = mpsc::channel(2);
    let exchange = Exchange {
        proxy,
        slot: RefCell::new(Some(slot)),
        admitted: RefCell::default(),
        connected,
        counts: Rc::clone(&counts),
        connections: RefCell::default(),
    };

    let (reading, writing) = client.into_split();
    let stream = tokio::io::join(Cursor::new(bytes).chain(reading), writing);
    let service = service_fn(|request| exchange.answer(request));
    let serving = server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);

    let ended = tokio::select! {
        biased;
        () = exchange.until_revoked(ends) => Verdict::Failed(FailReason::RuleRemoved),
        served = serving => match served {
            Ok(()) => Verdict::Allowed,
            Err(_) if counts.received.get() != 0 => Verdict::Allowed,
            Err(_) => Verdict::Failed(FailReason::Broken),
        },
        () = until_idle(&counts, IDLE) => Verdict::Failed(FailReason::Broken),
    };
    if let Some((request, admitted)) = exchange.admitted.take() {
        proxy.report(&request, ended, admitted.rule, counts.traffic(started));
    }
    (ended == Verdict::Allowed).then_some(())
}

impl Exchange<'_> {
    /// Ends when the rules no longer allow a connection to the server.
    async fn until_revoked(&self, mut connections: mpsc::Receiver<Ends>) {
        let mut current = connections.recv().await;
        while let Some(ends) = current {
            let admitted = self.admitted.borrow().clone();
            let Some((request, admitted)) = admitted else { break };
            tokio::select! {
                () = until_revoked(self.proxy, &request, &admitted, ends) => return,
                next = connections.recv() => current = next,
            }
        }
        std::future::pending::<()>().await;
    }

    async fn answer(
        &self,
        request: hyper::Request<Incoming>,
    ) -> Result<Response<Content>, Infallible> {
        let answered = match Target::new(request.method(), request.uri()) {
            Some(target) => self.pass_on(&target, request).await,
            None => match target::own_address(request.method(), request.uri()) {
                Some(address) => Ok(redirection(address)),
                None => Err(text(
                    StatusCode::NOT_FOUND,
                    "quackd: only requests of git and Git LFS go through this address",
                )),
            },
        };
        Ok(answered.unwrap_or_else(OwnAnswer::into_response))
    }

    /// Passes a request on. The error is an answer of quackd itself.
    async fn pass_on(
        &self,
        target: &Target,
        request: hyper::Request<Incoming>,
    ) -> Result<Response<Content>, OwnAnswer> {
        self.admit(target).await?;

        let (parts, body) = request.into_parts();
        let headers = chosen(&parts.headers, TO_SERVER);
        // A command may have a credential of its own.
        let is_own = headers.contains_key(header::AUTHORIZATION);
        let credential = if is_own { None } else { self.known_credential(target).await? };
        let had_credential = credential.is_some();

        let is_get = parts.method == Method::GET;
        let content = Content::from_client(body, &self.counts);
        let first = outgoing(&parts.method, target, headers.clone(), credential, content)?;
        let answered = self.send(target, first).await?;
        if answered.status() != StatusCode::UNAUTHORIZED || is_own {
            return self.pass_back(target, answered);
        }

        let Some(service) = target.service else {
            return Err(text(
                StatusCode::FORBIDDEN,
                "quackd: the server needs a password, and sessions use yours only for git at port 443, not for Git LFS",
            ));
        };
        self.proxy.credentials.drop_kept(&target.repository);
        if had_credential {
            return Err(self.refused(target, service, None, CredentialRefusal::NotAccepted));
        }
        // The body of another request is gone.
        if !is_get {
            return Err(self.refused(target, service, None, CredentialRefusal::NoCredential));
        }

        let credential = self.ask(target, service).await?;
        let second =
            outgoing(&parts.method, target, headers, Some(credential), Content::default())?;
        let answered = self.send(target, second).await?;
        if answered.status() == StatusCode::UNAUTHORIZED {
            self.proxy.credentials.drop_kept(&target.repository);
            return Err(self.refused(target, service, None, CredentialRefusal::NotAccepted));
        }
        self.pass_back(target, answered)
    }

    /// Decides about the host as for other connections.
    async fn admit(&self, target: &Target) -> Result<(), OwnAnswer> {
        let host = target.host.clone();
        let request = Request { host, port: target.port, path: RequestPath::Connect };
        let refused = |reason| {
            let refusal = Refusal::new(&request, reason, &self.proxy.label);
            text(StatusCode::FORBIDDEN, refusal.body.trim_end())
        };

        let slot = self.slot.take();
        let Some(mut slot) = slot.filter(|_| !self.proxy.near.contains(&request.host)) else {
            return Err(refused(DenyReason::PrivateAddress));
        };
        let admitted = self.proxy.admit(&request, &mut slot).await;
        *self.slot.borrow_mut() = Some(slot);
        let admitted = admitted.map_err(refused)?;
        *self.admitted.borrow_mut() = Some((request, admitted));
        Ok(())
    }

    /// Returns the kept credential, if there is one. Asks again if it has expired between two requests of a command.
    async fn known_credential(&self, target: &Target) -> Result<Option<HeaderValue>, OwnAnswer> {
        let Some(service) = target.service else { return Ok(None) };
        match self.proxy.credentials.known(&target.repository, service.is_push()) {
            Known::Value(value) => Ok(Some(value)),
            Known::Expired => self.ask(target, service).await.map(Some),
            Known::Nothing => Ok(None),
        }
    }

    /// Asks the supervisor for the credential of the repository, and keeps it.
    async fn ask(&self, target: &Target, service: Service) -> Result<HeaderValue, OwnAnswer> {
        let (repository, push) = (target.repository.clone(), service.is_push());
        let request = CredentialRequest::Git { repository, push };
        let generation = self.proxy.credentials.generation();
        let Answer { result, used_as } = self.proxy.credentials.ask(request).await;
        let value = match result {
            Ok(CredentialAnswer::Authorization(value)) => {
                HeaderValue::try_from(value).map_err(|_unusable| CredentialRefusal::NoCredential)
            }
            Ok(_) => Err(CredentialRefusal::Failed),
            Err(why) => Err(why),
        };
        let mut value = value.map_err(|why| self.refused(target, service, used_as, why))?;
        value.set_sensitive(true);
        self.proxy.credentials.keep(&target.repository, push, value.clone(), generation);
        Ok(value)
    }

    /// Tells the worker that a credential was not used, and returns the answer for git.
    fn refused(
        &self,
        target: &Target,
        service: Service,
        used_as: Option<String>,
        why: CredentialRefusal,
    ) -> OwnAnswer {
        let what = used_as.unwrap_or_else(|| service.use_of(&target.repository).to_string());
        let words = self.proxy.refuse_credential(what, why);
        text(StatusCode::FORBIDDEN, &format!("quackd: {words}"))
    }

    /// Connects to the server and sends a request.
    async fn send(
        &self,
        target: &Target,
        outgoing: hyper::Request<Content>,
    ) -> Result<Response<Incoming>, OwnAnswer> {
        let admitted = self.admitted.borrow().clone();
        let (Some((request, _)), Some(tls)) = (admitted, &self.proxy.tls) else {
            return Err(text(StatusCode::BAD_GATEWAY, "quackd: git over https is not served"));
        };
        let server = dial(self.proxy, &request, false).await.map_err(|error| match error {
            DialError::Private(address) => {
                self.admitted.take();
                let reason = DenyReason::PrivateAddress;
                self.proxy.refuse(&request, reason, Some(address));
                let refusal = Refusal::new(&request, reason, &self.proxy.label);
                text(StatusCode::FORBIDDEN, refusal.body.trim_end())
            }
            error => self.failed(target, error.reason().unwrap_or(FailReason::Unreachable), &error),
        })?;
        // Later requests of the exchange are few, so this does not fail.
        self.connected.try_send(ends(&server.stream, server.route)).ok();
        server.stream.set_nodelay(true).ok();

        let connecting = async {
            let name = ServerName::try_from(target.repository.host.clone());
            let name = name.map_err(io::Error::other)?;
            let stream = TokioIo::new(tls.connect(name, server.stream).await?);
            let mut builder = client::conn::http1::Builder::new();
            builder.max_buf_size(BUFFER).handshake(stream).await.map_err(io::Error::other)
        };
        let connected = timeout(TLS_TIME, connecting).await.unwrap_or_else(|late| Err(late.into()));
        let broken = |error: &dyn std::fmt::Display| {
            self.failed(target, FailReason::Broken, &format!("does not answer: {error}"))
        };
        let (mut sender, connection) = connected.map_err(|error| {
            let help = if is_about_certificate(&error) { ABOUT_CERTIFICATES } else { "" };
            broken(&format_args!("{error}{help}"))
        })?;
        self.connections.borrow_mut().spawn_local(async move {
            // The request gets the error.
            connection.await.ok();
        });
        sender.send_request(outgoing).await.map_err(|error| broken(&error))
    }

    /// Records a request that failed, and returns the answer for git.
    fn failed(&self, target: &Target, why: FailReason, error: &dyn std::fmt::Display) -> OwnAnswer {
        if let Some((request, admitted)) = self.admitted.take() {
            self.proxy.fail(&request, why, admitted.rule);
        }
        text(StatusCode::BAD_GATEWAY, &format!("quackd: {} {error}", target.place()))
    }

    /// Makes the answer for git of that of the server.
    fn pass_back(
        &self,
        target: &Target,
        answered: Response<Incoming>,
    ) -> Result<Response<Content>, OwnAnswer> {
        let (parts, body) = answered.into_parts();
        let mut headers = chosen(&parts.headers, TO_CLIENT);
        if parts.status.is_redirection() {
            let location = parts.headers.get(header::LOCATION);
            let location = location.and_then(|location| location.to_str().ok());
            let inside = location.and_then(|to| location_inside(to, &target.place()));
            let inside = inside.and_then(|inside| HeaderValue::try_from(inside).ok());
            let Some(inside) = inside else {
                let error =
                    "redirects to an address that is not one of https at the same port or port 443";
                return Err(self.failed(target, FailReason::Broken, &error));
            };
            headers.insert(header::LOCATION, inside);
        }

        let mut response = Response::new(Content::from_server(body, &self.counts));
        *response.status_mut() = parts.status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// Leads git to another address.
fn redirection(address: HeaderValue) -> Response<Content> {
    let mut response = Response::new(Content::default());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, address);
    response
}

/// Whether TLS refused the certificate of the server.
fn is_about_certificate(error: &io::Error) -> bool {
    let refused = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    matches!(refused, Some(rustls::Error::InvalidCertificate(_)))
}

/// Copies these fields.
fn chosen(headers: &HeaderMap, names: &[&'static str]) -> HeaderMap {
    let mut chosen = HeaderMap::new();
    for &name in names {
        if let Some(value) = headers.get(name) {
            chosen.insert(name, value.clone());
        }
    }
    chosen
}

/// The request for the server.
fn outgoing(
    method: &Method,
    target: &Target,
    mut headers: HeaderMap,
    credential: Option<HeaderValue>,
    content: Content,
) -> Result<hyper::Request<Content>, OwnAnswer> {
    let request = hyper::Request::builder()
        .method(method)
        .uri(&target.path)
        .header(header::HOST, target.place())
        .body(content);
    let mut request = request
        .map_err(|error| text(StatusCode::BAD_REQUEST, &format!("quackd: bad request: {error}")))?;
    if let Some(credential) = credential {
        headers.insert(header::AUTHORIZATION, credential);
    }
    request.headers_mut().extend(headers);
    Ok(request)
}

/// An answer of quackd itself. Git shows its line.
struct OwnAnswer {
    status: StatusCode,
    line: String,
}

fn text(status: StatusCode, line: &str) -> OwnAnswer {
    OwnAnswer { status, line: format!("{line}\n") }
}

impl OwnAnswer {
    fn into_response(self) -> Response<Content> {
        let mut response = Response::new(Content::Text(self.line.into()));
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

impl Service {
    fn is_push(self) -> bool {
        matches!(self, Self::Push)
    }

    fn use_of(self, repository: &Repository) -> CredentialUse {
        match self {
            Self::Fetch => CredentialUse::Fetch(repository.clone()),
            Self::Push => CredentialUse::Push(repository.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
