//! Finds the row of a request's method, checks the caller's access, reads the parameters, runs the handler and writes
//! the reply. Called by each connection, once per request.

use super::Caller;
use super::serve::{Entry, METHODS, check_access, refused};
use super::tool_parameters::nearest;
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::wire::{self, ParsedRequest};
use bytes::Bytes;
use quackd_protocol::client::{MethodRow, ReplyOrder};
use serde::de::Error as _;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Returns the first row with this name.
fn find(name: &str) -> Option<&'static Entry> {
    METHODS.iter().find(|method| method.row.name == name)
}

/// Returns the row of the request's action. The first row of a name gets the requests that no row takes.
fn chosen(first: &'static Entry, request: &ParsedRequest) -> &'static Entry {
    if first.row.action.is_none() {
        return first;
    }
    let action = request.text("action");
    let takes = |row: &MethodRow| {
        row.name == first.row.name
            && row.action == action.as_deref()
            && row.with.is_none_or(|name| request.text(name).is_some())
    };
    METHODS.iter().find(|method| takes(&method.row)).unwrap_or(first)
}

/// Returns whether other requests of the client run at the same time as this one. Unknown methods are answered in
/// order.
pub(crate) fn is_concurrent(request: &ParsedRequest) -> bool {
    find(&request.method).is_some_and(|method| method.row.order == ReplyOrder::Concurrent)
}

/// Answers one request with exactly one reply.
pub(crate) async fn answer(mut request: ParsedRequest, caller: &Caller) -> Bytes {
    let Some(method) = find(&request.method) else {
        return wire::unknown_method(request.id.as_ref(), &request.method);
    };
    match admit(&method.row, &request, caller.client.transport) {
        Ok(()) => (chosen(method, &request).run)(&mut request, caller).await,
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
    method: &MethodRow,
    request: &ParsedRequest,
    transport: Transport,
) -> Result<(), MethodError> {
    check_access(method, transport)?;

    let name = method.name;
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
    let ours = METHODS.iter().map(|method| method.row).filter(|row| row.name.starts_with(OURS));
    ours.map(|row| (row.name, quackd_schema::parameters(&row))).collect()
});

/// Describes an unknown parameter with the most similar known name, or with all known names.
fn unknown_parameter(unknown: &str, known: &[String]) -> String {
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let unknown_plain = plain(unknown);
    let distance = |name: &&String| strsim::osa_distance(&unknown_plain, &plain(name));
    let near = nearest(known.iter(), distance, &unknown_plain);

    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let hint = match near {
        Some(name) => format!("did you mean `{name}`?"),
        None if names.is_empty() => "there are none".to_owned(),
        None => format!("there are {}", names.join(", ")),
    };
    format!("unknown parameter `{unknown}`; {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::client::{METHODS, RemoteAccess};

    fn admit(request: &ParsedRequest, transport: Transport) -> Result<(), MethodError> {
        super::find(&request.method).map_or(Ok(()), |it| super::admit(&it.row, request, transport))
    }

    fn request(method: &str, params: &str) -> ParsedRequest {
        let line = format!("{{\"method\":\"{method}\",\"params\":{params}}}");
        wire::parse(line.as_bytes()).unwrap().unwrap()
    }

    /// The methods that remote clients may not call: never (true), or not in every way.
    fn limited() -> Vec<(&'static str, bool)> {
        let limited = METHODS.iter().filter_map(|row| match row.remote {
            RemoteAccess::All => None,
            RemoteAccess::Part => Some((row.name, false)),
            // They may call other actions of the method.
            RemoteAccess::Never(_) => Some((row.name, row.action.is_none())),
        });
        let mut limited: Vec<_> = limited.collect();
        limited.dedup();
        limited
    }

    #[test]
    fn the_action_chooses_the_row_and_the_first_row_gets_every_other_request() {
        for (params, action, with) in [
            ("{}", "show", None),
            (r#"{"action":"show"}"#, "show", None),
            (r#"{"action":null}"#, "show", None),
            (r#"{"action":"dance"}"#, "show", None),
            (r#"{"action":5}"#, "show", None),
            (r#"{"action":["set"]}"#, "show", None),
            (r#"{"rules":[],"action":"set"}"#, "set", None),
            (r#"{"\u0061ction":"allow"}"#, "allow", None),
            (r#"{"action":"explain","target":"/x"}"#, "explain", None),
            (r#"{"action":"explain","host":null}"#, "explain", None),
            (r#"{"action":"explain","host":""}"#, "explain", Some("host")),
        ] {
            let request = request("quack.sandbox", params);
            let row = chosen(find(&request.method).unwrap(), &request).row;
            assert_eq!((row.action, row.with), (Some(action), with), "{params}");
        }
        let request = request("quack.isolated", r#"{"action":"set"}"#);
        assert_eq!(chosen(find(&request.method).unwrap(), &request).row.name, "quack.isolated");
    }

    /// Here a row does nothing: the methods themselves refuse. tests/black_box/remote.rs asks each of these for what
    /// is not for remote clients (`the_token_neither_stops_the_daemon_nor_widens_what_sessions_may_do`; of
    /// `quack.isolated`, `the_token_makes_no_isolated_session_and_applies_nothing`; of terminals,
    /// `the_token_looks_at_terminals_only`; of `quack.agent`, remote_page.rs; of `remote_status`,
    /// `a_single_request_may_speak_for_a_websocket_and_for_nobody_else`).
    #[test]
    fn what_methods_refuse_themselves_is_what_the_tests_of_the_whole_daemon_ask_for() {
        let parts = limited().into_iter().filter(|(_, is_never)| !is_never);
        let parts: Vec<_> = parts.map(|(name, _)| name).collect();
        let asked = [
            "attach",
            "quack.session_new",
            "quack.session_delete",
            "quack.sandbox",
            "quack.isolated",
            "quack.run",
            "quack.term_attach",
            "quack.term_detach",
            "quack.term_kill",
            "quack.agent",
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
        let mut limited = limited();
        documented.sort_unstable();
        limited.sort_unstable();
        assert_eq!(documented, limited);
    }

    #[test]
    fn what_is_not_for_remote_clients_is_refused_to_them_by_each_of_their_doors() {
        for MethodRow { name: method, action, remote, .. } in METHODS {
            // An action is refused after its parameters were read: tests/black_box/remote.rs.
            let is_never = matches!(remote, RemoteAccess::Never(_)) && action.is_none();
            let request = request(method, "{}");
            assert!(admit(&request, Transport::Socket).is_ok(), "{method}");
            for transport in [Transport::RemoteWs, Transport::RemoteHttp] {
                let is_refused = admit(&request, transport).is_err();
                assert_eq!(is_refused, is_never, "{method}");
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
        for MethodRow { name: method, .. } in METHODS {
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
