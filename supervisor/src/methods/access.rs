//! Which method a client may call by which door: one row for each, with the reason.
//!
//! Who has the token of remote control works in the sessions, as they are set up, from somewhere else. What says
//! how things are set up on this machine, and whether the daemon runs, is for who sits at it.

use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::wire::Request;
use quackd_protocol::schema::wire::parameters;
use serde::de::Error as _;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What clients of remote control may do with a method.
#[derive(Debug, Clone, Copy)]
enum Remote {
    /// What a client of the socket may.
    All,
    /// Some of it: the method itself refuses the rest.
    Part,
    /// Nothing, and this is said.
    Nothing(fn() -> MethodError),
}

/// Every method, in the order of docs/protocol.md, and why it is so.
const DOORS: &[(&str, Remote, &str)] = &[
    ("ping", Remote::All, "looks"),
    ("attach", Remote::Part, "sessions are what it is for; none is taken out of safe mode"),
    ("sessions", Remote::All, "looks"),
    ("workspaces", Remote::All, "looks"),
    ("activate_session", Remote::All, "the phone app has a list to choose from"),
    ("quack.find", Remote::All, "looks"),
    ("quack.session_new", Remote::All, "sessions are what the token is for"),
    ("quack.session_delete", Remote::All, "forgets what attach makes; no file of a workspace"),
    ("get_state", Remote::All, "looks"),
    ("quack.sandbox", Remote::Part, "`set` would let the token decide what the token may do"),
    ("voice_tool_call", Remote::All, "runs within the session's policy"),
    ("quack.tool", Remote::All, "as voice_tool_call"),
    ("quack.cancel", Remote::All, "ends what the client itself began"),
    ("abort", Remote::All, "ends what a session began"),
    ("say", Remote::All, "speaks to a session"),
    ("extension_ui_response", Remote::All, "as say: its Pi asks whoever follows"),
    ("follow", Remote::All, "looks"),
    ("unfollow", Remote::All, "is about the client itself"),
    ("doctor", Remote::All, "looks; the shell that it may ask is the user's"),
    ("quack.config", Remote::Nothing(local_config), "values may hold what is nobody else's"),
    ("quack.ps", Remote::All, "looks"),
    ("quack.metrics", Remote::All, "looks"),
    ("quack.gc", Remote::Part, "a dry run looks; the rest deletes files of this machine"),
    ("quack.daemon", Remote::All, "looks"),
    ("quack.restart", Remote::Part, "without a service manager nobody there could start it again"),
    ("quack.tree", Remote::All, "looks"),
    ("quack.pin", Remote::All, "is about a session, and can be taken back"),
    ("quack.kill", Remote::All, "ends what a session began, when abort does not"),
    ("quack.shutdown", Remote::Nothing(local_stop), "nobody there could start it again"),
    ("voice_connect", Remote::All, "is about the client itself"),
    ("voice_start", Remote::All, "phones are voice clients"),
    ("voice_state", Remote::All, "is about the client itself"),
    ("remote_status", Remote::Part, "the token is told to nobody who came with it"),
    ("remote_configure", Remote::Part, "the door is not changed from outside"),
];

fn local_config() -> MethodError {
    MethodError::LocalConfig
}

fn local_stop() -> MethodError {
    MethodError::LocalStop
}

/// Methods of ours, beside upstream's.
const OURS: &str = "quack.";

/// Refuses methods that the client may not call, and unknown parameters of `quack.*` methods. What upstream's methods are given is read as upstream reads it. An unknown method is not refused here.
pub(super) fn admit(request: &Request, transport: Transport) -> Result<(), MethodError> {
    let mut rows = DOORS.iter();
    let Some((method, remote, _)) = rows.find(|(name, ..)| *name == request.method) else {
        return Ok(());
    };
    if let (Remote::Nothing(refusal), Transport::RemoteWs | Transport::RemoteHttp) =
        (remote, transport)
    {
        return Err(refusal());
    }
    if !method.starts_with(OURS) {
        return Ok(());
    }
    let refused = |why| Err(MethodError::Params { method, why: serde_json::Error::custom(why) });
    if let Some(odd) = request.odd_params {
        return refused(format!("must be an object, not {odd}"));
    }
    let known = PARAMETERS.get(method).map(Vec::as_slice).unwrap_or_default();
    match request.unknown_parameter(known) {
        Some(unknown) => refused(unknown_parameter(&unknown, known)),
        None => Ok(()),
    }
}

/// Parameter names of each `quack.*` method, from its schema.
static PARAMETERS: LazyLock<HashMap<&'static str, Vec<String>>> = LazyLock::new(|| {
    let ours = DOORS.iter().map(|(method, ..)| *method).filter(|name| name.starts_with(OURS));
    ours.filter_map(|name| Some((name, parameters(name)?))).collect()
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
    use crate::wire;

    fn request(method: &str, params: &str) -> Request {
        let line = format!("{{\"method\":\"{method}\",\"params\":{params}}}");
        wire::parse(line.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn every_method_has_a_row_with_a_reason_and_no_row_is_without_a_method() {
        let (methods, _) = quackd_protocol::schema::wire::names();
        let rows: Vec<_> = DOORS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(rows, methods);
        assert!(DOORS.iter().all(|(.., why)| !why.is_empty()));
    }

    /// Here a row does nothing: the methods themselves refuse. tests/black_box/remote.rs asks each of these for what
    /// is not for remote clients (`the_token_neither_stops_the_daemon_nor_widens_what_sessions_may_do`; of
    /// `remote_status`, `a_single_request_may_speak_for_a_websocket_and_for_nobody_else`).
    #[test]
    fn what_methods_refuse_themselves_is_what_the_tests_of_the_whole_daemon_ask_for() {
        let parts = DOORS.iter().filter(|(_, remote, _)| matches!(remote, Remote::Part));
        let parts: Vec<_> = parts.map(|(method, ..)| *method).collect();
        let asked = [
            "attach",
            "quack.sandbox",
            "quack.gc",
            "quack.restart",
            "remote_status",
            "remote_configure",
        ];
        assert_eq!(parts, asked, "a new one needs a refusal there first");
    }

    #[test]
    fn what_is_not_for_remote_clients_is_refused_to_them_by_each_of_their_doors() {
        for (method, remote, _) in DOORS {
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
        for (method, ..) in DOORS {
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
