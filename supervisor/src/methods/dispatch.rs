//! Finds the row of a request's method, checks the caller's access, reads the parameters, runs the handler and writes
//! the reply. Called by each connection, once per request.

use super::METHODS;
use crate::errors::MethodError;
use crate::events::client_registry::{Client, Transport};
use crate::registry::Registry;
use crate::services::Services;
use crate::session::actor::TellSession;
use crate::wire::{self, ParsedRequest};
use actix::Addr;
use bytes::Bytes;
use quackd_protocol::client::{self, LOCAL_APP};
use quackd_protocol::limits::LOCAL_APP_DEADLINE;
use quackd_schema::{MethodSchema, Shape, Wire, shape_of};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

/// One method.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) schema: MethodSchema,
    pub(super) order: Order,
    pub(super) remote: Remote,
    pub(super) run: for<'a> fn(&'a mut ParsedRequest, &'a Caller) -> Replying<'a>,
}

/// Future of a reply. Runs on the actors' thread.
type Replying<'a> = Pin<Box<dyn Future<Output = Bytes> + 'a>>;

/// Order of the replies to one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The next request waits for this reply.
    InOrder,
    /// The handler may wait for a disk or a worker, and other requests run at the same time.
    Concurrent,
}

/// Access of remote clients to a method.
#[derive(Debug, Clone, Copy)]
pub(super) enum Remote {
    /// Like local clients.
    All,
    /// The handler refuses some requests.
    Part,
    /// None, with this error.
    Nothing(fn() -> MethodError),
}

/// Parameters of a handler: any type that can be read and has a schema, or [`NoParams`].
pub(super) trait Params: Sized {
    const SHAPE: Option<Shape>;
    fn read(request: &mut ParsedRequest) -> Result<Self, serde_json::Error>;
}

impl<T: DeserializeOwned + JsonSchema> Params for T {
    const SHAPE: Option<Shape> = Some(shape_of::<T>);

    fn read(request: &mut ParsedRequest) -> Result<Self, serde_json::Error> {
        request.params()
    }
}

/// The method has no parameters.
pub(super) struct NoParams;

impl Params for NoParams {
    const SHAPE: Option<Shape> = None;

    fn read(_request: &mut ParsedRequest) -> Result<Self, serde_json::Error> {
        Ok(Self)
    }
}

/// Result of a handler: any type that can be written and has a schema, [`NoData`], or a type that writes its own line.
pub(super) trait Reply {
    const SHAPE: Option<Shape>;
    fn line(self, id: Option<&Value>) -> Bytes;
}

impl<T: Serialize + JsonSchema> Reply for T {
    const SHAPE: Option<Shape> = Some(shape_of::<T>);

    fn line(self, id: Option<&Value>) -> Bytes {
        wire::success(id, Some(self))
    }
}

/// Success without data.
pub(super) struct NoData;

impl Reply for NoData {
    const SHAPE: Option<Shape> = None;

    fn line(self, id: Option<&Value>) -> Bytes {
        wire::success::<()>(id, None)
    }
}

/// Gives a type the schema of another type: one that reads more leniently, or forwards bytes unread.
macro_rules! schema_like {
    ($own:ty, $shown:ty) => {
        impl schemars::JsonSchema for $own {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$shown>::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                <$shown>::schema_id()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$shown>::json_schema(generator)
            }
        }
    };
}
pub(super) use schema_like;

/// Builds the table of methods. A row begins with the type that clients call. The documentation of a row is the
/// description of the method.
macro_rules! methods {
    ($(
        $(#[doc = $about:literal])+
        $called:ident: $order:ident, $remote:expr, $handler:path $(, needs [$($required:literal),+])?;
    )+) => {
        const METHODS: &[Method] = {
            use dispatch::Order::{Concurrent, InOrder};
            use dispatch::Remote::{All, Nothing, Part};
            use quackd_protocol::client::Method as _;
            &[$(Method {
                schema: dispatch::schema::<$called, _, _>(
                    concat!($($about),+).trim_ascii_start(),
                    &[$($($required),+)?],
                    &$handler,
                ),
                order: $order,
                remote: $remote,
                run: |request, caller| Box::pin(dispatch::call($called::NAME, request, caller, $handler)),
            }),+]
        };
    };
}
pub(super) use methods;

/// Returns the schema of a method with this handler.
pub(super) const fn schema<M: client::Method, P: Params, R: Reply>(
    about: &'static str,
    required: &'static [&'static str],
    _handler: &impl AsyncFn(P, &Caller) -> Result<R, MethodError>,
) -> MethodSchema {
    MethodSchema { name: M::NAME, about, params: P::SHAPE, required, data: R::SHAPE }
}

/// Reads the parameters of a request, runs the handler and returns the reply.
pub(super) async fn call<P: Params, R: Reply>(
    method: &'static str,
    request: &mut ParsedRequest,
    caller: &Caller,
    handler: impl AsyncFn(P, &Caller) -> Result<R, MethodError>,
) -> Bytes {
    let done = match P::read(request) {
        Ok(params) => handler(params, caller).await,
        Err(why) => Err(MethodError::Params { method, why }),
    };
    match done {
        Ok(reply) => reply.line(request.id.as_ref()),
        Err(error) => refused(request, &error),
    }
}

fn refused(request: &ParsedRequest, error: &MethodError) -> Bytes {
    wire::failure(request.id.as_ref(), &error.to_string(), error.code())
}

/// Returns the client wire of this daemon, for schemas.
#[must_use]
pub fn wire() -> Wire {
    Wire::new(METHODS.iter().map(|method| method.schema).collect())
}

/// The calling client, with the services that methods use.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) services: Rc<Services>,
    pub(crate) registry: Addr<Registry>,
    pub(crate) client: Rc<Client>,
}

impl Caller {
    pub(crate) fn new(
        services: Rc<Services>,
        registry: Addr<Registry>,
        client: Rc<Client>,
    ) -> Self {
        Self { services, registry, client }
    }

    /// The time after which this client gives up, if it is known.
    pub(super) fn gives_up(&self) -> Option<Duration> {
        let kind = self.services.voice.kind(&self.client.id)?;
        (kind == LOCAL_APP).then_some(LOCAL_APP_DEADLINE)
    }

    /// Ends the client's following and its voice role, after a disconnect or an unfollow.
    pub(crate) fn disconnect(&self) {
        let session = self.client.stop_following();
        let voice = &self.services.voice;
        if let Some(session) = session {
            voice.unfollowed(&session, &self.client);
        }
        voice.forget(&self.client.id);
    }

    /// Ends the background jobs of the sessions that the client claimed, after a disconnect.
    #[expect(
        clippy::disallowed_methods,
        reason = "a signal that must not be lost; a disconnect causes one per claim, and claims are limited"
    )]
    pub(crate) fn end_jobs(&self) {
        let sessions = self.client.claims.ending_jobs().into_iter();
        for entry in sessions.filter_map(|session| self.services.sessions.table.get(&session)) {
            entry.handle.do_send(TellSession::ClientLeft);
        }
    }
}

/// Returns the row with this name.
fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.schema.name == name)
}

/// Whether other requests of the client run at the same time as this one. Unknown methods are answered in order.
pub(crate) fn is_concurrent(request: &ParsedRequest) -> bool {
    find(&request.method).is_some_and(|method| method.order == Order::Concurrent)
}

/// Answers one request with exactly one reply.
pub(crate) async fn answer(mut request: ParsedRequest, caller: &Caller) -> Bytes {
    let Some(method) = find(&request.method) else {
        return wire::unknown_method(request.id.as_ref(), &request.method);
    };
    match admit(method, &request, caller.client.transport) {
        Ok(()) => (method.run)(&mut request, caller).await,
        Err(error) => refused(&request, &error),
    }
}

/// Prefix of quackd's own methods. All others are upstream's.
const OURS: &str = "quack.";

/// Checks whether a client may call a method, and the parameter names of quackd's own methods. Upstream ignores unknown
/// parameters of its methods, and so does quackd.
///
/// # Errors
/// The refusal of a remote client, and `Params`.
fn admit(
    method: &'static Method,
    request: &ParsedRequest,
    transport: Transport,
) -> Result<(), MethodError> {
    if let (Remote::Nothing(refusal), Transport::RemoteWs | Transport::RemoteHttp) =
        (method.remote, transport)
    {
        return Err(refusal());
    }
    let name = method.schema.name;
    if !name.starts_with(OURS) {
        return Ok(());
    }
    let refused =
        |why| Err(MethodError::Params { method: name, why: serde_json::Error::custom(why) });
    if let Some(odd) = request.odd_params {
        return refused(format!("must be an object, not {odd}"));
    }
    let known = PARAMETERS.get(name).map(Vec::as_slice).unwrap_or_default();
    match request.unknown_parameter(known) {
        Some(unknown) => refused(unknown_parameter(&unknown, known)),
        None => Ok(()),
    }
}

/// Parameter names of each of quackd's own methods, from its schema.
static PARAMETERS: LazyLock<HashMap<&'static str, Vec<String>>> = LazyLock::new(|| {
    let ours = METHODS.iter().filter(|method| method.schema.name.starts_with(OURS));
    ours.map(|method| (method.schema.name, method.schema.parameters())).collect()
});

/// Describes an unknown parameter with the most similar known name, or with all known names.
fn unknown_parameter(unknown: &str, known: &[String]) -> String {
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let wanted = plain(unknown);
    let limit = (wanted.chars().count() / 3).clamp(1, 3);
    let near = known
        .iter()
        .map(|name| (strsim::osa_distance(&wanted, &plain(name)), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance);
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let hint = match near {
        Some((_, name)) => format!("did you mean `{name}`?"),
        None if names.is_empty() => "there are none".to_owned(),
        None => format!("there are {}", names.join(", ")),
    };
    format!("unknown parameter `{unknown}`; {hint}")
}

/// A session reference in a parameter of quackd's own methods: `None` if absent.
///
/// # Errors
/// `NoReference` if it is empty. Upstream's methods read an empty reference as none, which means the active session.
pub(super) fn own_reference(given: Option<&str>) -> Result<Option<String>, MethodError> {
    match given {
        Some(text) if text.trim().is_empty() => Err(MethodError::NoReference),
        other => Ok(other.map(str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(request: &ParsedRequest, transport: Transport) -> Result<(), MethodError> {
        super::find(&request.method).map_or(Ok(()), |it| super::admit(it, request, transport))
    }

    fn request(method: &str, params: &str) -> ParsedRequest {
        let line = format!("{{\"method\":\"{method}\",\"params\":{params}}}");
        wire::parse(line.as_bytes()).unwrap().unwrap()
    }

    /// Here a row does nothing: the methods themselves refuse. tests/black_box/remote.rs asks each of these for what
    /// is not for remote clients (`the_token_neither_stops_the_daemon_nor_widens_what_sessions_may_do`; of
    /// `quack.isolated`, `the_token_makes_no_isolated_session_and_applies_nothing`; of `remote_status`,
    /// `a_single_request_may_speak_for_a_websocket_and_for_nobody_else`).
    #[test]
    fn what_methods_refuse_themselves_is_what_the_tests_of_the_whole_daemon_ask_for() {
        let parts = METHODS.iter().filter(|method| matches!(method.remote, Remote::Part));
        let parts: Vec<_> = parts.map(|method| method.schema.name).collect();
        let asked = [
            "attach",
            "quack.session_new",
            "quack.session_delete",
            "quack.sandbox",
            "quack.isolated",
            "extension_ui_response",
            "quack.approvals",
            "quack.answer",
            "quack.gc",
            "quack.restart",
            "quack.forward",
            "remote_status",
        ];
        assert_eq!(parts, asked, "a new one needs a refusal there first");
    }

    #[test]
    fn the_documentation_names_every_method_that_remote_clients_may_not_call() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/remote.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, rows) = page.split_once("\n## What the token does not allow\n").unwrap();
        let rows = rows.lines().take_while(|line| !line.starts_with("## "));
        let mut documented: Vec<(&str, bool)> = rows
            .filter_map(|row| row.strip_prefix("| ")?.split_once(" | "))
            .flat_map(|(names, refused)| {
                let names = names.split('`').skip(1).step_by(2);
                names.map(move |name| (name, refused.starts_with("always")))
            })
            .collect();
        let limited = METHODS.iter().filter_map(|method| match method.remote {
            Remote::All => None,
            Remote::Part => Some((method.schema.name, false)),
            Remote::Nothing(_) => Some((method.schema.name, true)),
        });
        let mut limited: Vec<_> = limited.collect();
        documented.sort_unstable();
        limited.sort_unstable();
        assert_eq!(documented, limited);
    }

    #[test]
    fn what_is_not_for_remote_clients_is_refused_to_them_by_each_of_their_doors() {
        for Method { schema: MethodSchema { name: method, .. }, remote, .. } in METHODS {
            let request = request(method, "{}");
            assert!(admit(&request, Transport::Socket).is_ok(), "{method}");
            for transport in [Transport::RemoteWs, Transport::RemoteHttp] {
                let is_refused = admit(&request, transport).is_err();
                assert_eq!(is_refused, matches!(remote, Remote::Nothing(_)), "{method}");
            }
        }
        let refused = |method| admit(&request(method, "{}"), Transport::RemoteHttp).unwrap_err();
        assert_eq!(refused("quack.shutdown").to_string(), "Only local clients may stop the daemon");
        assert_eq!(
            refused("quack.config").to_string(),
            "Only local clients are shown the configuration"
        );
    }

    #[test]
    fn parameters_that_are_none_are_refused_by_methods_of_ours_and_by_no_other() {
        for Method { schema: MethodSchema { name: method, .. }, .. } in METHODS {
            for params in ["[{}]", "\"x\"", "7", "false"] {
                let admitted = admit(&request(method, params), Transport::Socket);
                assert_eq!(admitted.is_err(), method.starts_with(OURS), "{method} {params}");
            }
            assert!(admit(&request(method, "null"), Transport::Socket).is_ok(), "{method}");
        }
        let refused = admit(&request("quack.pin", "[1]"), Transport::Socket).unwrap_err();
        let text = "Invalid parameters for quack.pin: must be an object, not an array";
        assert_eq!(refused.to_string(), text);
        assert!(admit(&request("quack.nosuch", "[1]"), Transport::RemoteWs).is_ok());
    }
}
