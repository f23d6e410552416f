//! Finds the row of a request's method, checks the caller's access, reads the parameters, runs the handler and writes
//! the reply. Called by each connection, once per request.

use super::Caller;
use super::row::{Method, refused};
use super::table::METHODS;
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::wire::{self, ParsedRequest};
use bytes::Bytes;
use quackd_protocol::client::{RemoteAccess, ReplyOrder};
use quackd_schema::Wire;
use serde::de::Error as _;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Returns the client wire of this daemon, for schemas.
#[must_use]
pub fn wire() -> Wire {
    Wire::new(METHODS.iter().map(|method| method.schema).collect())
}

/// Returns the row with this name.
fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.row.name == name)
}

/// Whether other requests of the client run at the same time as this one. Unknown methods are answered in order.
pub(crate) fn is_concurrent(request: &ParsedRequest) -> bool {
    find(&request.method).is_some_and(|method| method.row.order == ReplyOrder::Concurrent)
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
    if let (RemoteAccess::Never(why), Transport::RemoteWs | Transport::RemoteHttp) =
        (method.row.remote, transport)
    {
        return Err(MethodError::LocalOnly(why));
    }
    let name = method.row.name;
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
    let ours = METHODS.iter().filter(|method| method.row.name.starts_with(OURS));
    ours.map(|method| (method.row.name, method.schema.parameters())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::client::MethodRow;

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
        let parts = METHODS.iter().filter(|method| method.row.remote == RemoteAccess::Part);
        let parts: Vec<_> = parts.map(|method| method.row.name).collect();
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
        let limited = METHODS.iter().filter_map(|method| match method.row.remote {
            RemoteAccess::All => None,
            RemoteAccess::Part => Some((method.row.name, false)),
            RemoteAccess::Never(_) => Some((method.row.name, true)),
        });
        let mut limited: Vec<_> = limited.collect();
        documented.sort_unstable();
        limited.sort_unstable();
        assert_eq!(documented, limited);
    }

    #[test]
    fn what_is_not_for_remote_clients_is_refused_to_them_by_each_of_their_doors() {
        for MethodRow { name: method, remote, .. } in METHODS.iter().map(|method| method.row) {
            let request = request(method, "{}");
            assert!(admit(&request, Transport::Socket).is_ok(), "{method}");
            for transport in [Transport::RemoteWs, Transport::RemoteHttp] {
                let is_refused = admit(&request, transport).is_err();
                assert_eq!(is_refused, matches!(remote, RemoteAccess::Never(_)), "{method}");
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
        for MethodRow { name: method, .. } in METHODS.iter().map(|method| method.row) {
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
