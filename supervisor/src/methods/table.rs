//! One row per method of the client wire: name, access, order of the reply, and handler. Parameters and replies are in
//! the schema of the protocol crate, under the same name.
//!
//! A holder of the remote-control token works in the sessions as they are configured. Changing how this machine is
//! configured, and stopping the daemon, requires a local client.

use super::{
    Caller, abort, answered, attach, config, daemon, doctor, done, extension_ui, find, follow, gc,
    kill, metrics, pin, ping, ps, remote, reply, sandbox, say, session_admin, sessions, state,
    streaming, tool, tree, voice,
};
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::services::StopRequest;
use crate::wire::{self, ParsedRequest};
use bytes::Bytes;
use quackd_protocol::schema::wire::parameters;
use serde::de::Error as _;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::LazyLock;

/// Future of a reply. Runs on the actors' thread.
type Replying<'a> = Pin<Box<dyn Future<Output = Bytes> + 'a>>;

/// One method.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) name: &'static str,
    /// Access of remote clients. Each row states the reason.
    remote: Remote,
    order: Order,
    pub(super) run: for<'a> fn(&'a mut ParsedRequest, &'a Caller) -> Replying<'a>,
}

/// Access of remote clients to a method.
#[derive(Debug, Clone, Copy)]
enum Remote {
    /// Like local clients.
    All,
    /// The handler refuses some requests.
    Part,
    /// None, with this error.
    Nothing(fn() -> MethodError),
}

/// Order of the replies to one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The next request waits for this reply.
    InOrder,
    /// The handler may wait for a disk or a worker, and other requests run at the same time.
    Concurrent,
}

impl Method {
    /// The row with this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        METHODS.iter().find(|method| method.name == name)
    }

    /// Whether other requests of the client run at the same time.
    pub(super) fn is_concurrent(&self) -> bool {
        self.order == Order::Concurrent
    }
}

/// All methods, in the order of docs/protocol.md.
const METHODS: &[Method] = &[
    Method {
        name: "ping",
        // Reason: reads.
        remote: Remote::All,
        order: Order::InOrder,
        run: |r, c| Box::pin(async move { reply(r, Ok(ping::ping(c))) }),
    },
    Method {
        name: "attach",
        // Reason: opening sessions is its purpose; it cannot end safe mode.
        remote: Remote::Part,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, attach::attach).await }),
    },
    Method {
        name: "sessions",
        // Reason: reads.
        remote: Remote::All,
        order: Order::InOrder,
        run: |r, c| Box::pin(async move { answered(r, c, sessions::sessions).await }),
    },
    Method {
        name: "workspaces",
        // Reason: reads.
        remote: Remote::All,
        order: Order::InOrder,
        run: |r, c| Box::pin(async move { reply(r, session_admin::workspaces(c).await) }),
    },
    Method {
        name: "activate_session",
        // Reason: the phone app offers a list of sessions.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, session_admin::activate_session).await }),
    },
    Method {
        name: "quack.find",
        // Reason: reads.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, find::find).await }),
    },
    Method {
        name: "quack.session_new",
        // Reason: the token grants access to sessions.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, session_admin::session_new).await }),
    },
    Method {
        name: "quack.session_delete",
        // Reason: removes what attach creates, and no file of a workspace.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, session_admin::session_delete).await }),
    },
    Method {
        name: "get_state",
        // Reason: reads.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, state::get_state).await }),
    },
    Method {
        name: "quack.sandbox",
        // Reason: `set` would let the token extend its own rights.
        remote: Remote::Part,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, sandbox::sandbox).await }),
    },
    Method {
        name: "voice_tool_call",
        // Reason: runs within the session's policy.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { tool::voice_tool_call(r, c).await }),
    },
    Method {
        name: "quack.tool",
        // Reason: like voice_tool_call.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { tool::quack_tool(r, c).await }),
    },
    Method {
        name: "quack.cancel",
        // Reason: ends a call of the same client.
        remote: Remote::All,
        order: Order::InOrder,
        run: |r, c| Box::pin(async move { answered(r, c, streaming::cancel).await }),
    },
    Method {
        name: "abort",
        // Reason: ends work of a session.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, abort::abort).await }),
    },
    Method {
        name: "say",
        // Reason: sends a prompt to a session.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { say::say(r, c).await }),
    },
    Method {
        name: "extension_ui_response",
        // Reason: like say: Pi asks all followers.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| {
            Box::pin(async move { answered(r, c, extension_ui::extension_ui_response).await })
        },
    },
    Method {
        name: "follow",
        // Reason: reads.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, follow::follow).await }),
    },
    Method {
        name: "unfollow",
        // Reason: affects only the client itself.
        remote: Remote::All,
        order: Order::InOrder,
        run: |r, c| {
            Box::pin(async move {
                {
                    follow::unfollow(c);
                    done(r)
                }
            })
        },
    },
    Method {
        name: "doctor",
        // Reason: reads; runs only the user's own login shell.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, doctor::doctor).await }),
    },
    Method {
        name: "quack.config",
        // Reason: values may be secret.
        remote: Remote::Nothing(|| MethodError::LocalConfig),
        order: Order::InOrder,
        run: |r, c| Box::pin(async move { reply(r, Ok(config::config(c))) }),
    },
    Method {
        name: "quack.ps",
        // Reason: reads.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { reply(r, ps::ps(c).await) }),
    },
    Method {
        name: "quack.metrics",
        // Reason: reads.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { reply(r, metrics::metrics(c).await) }),
    },
    Method {
        name: "quack.gc",
        // Reason: a dry run reads; a real run deletes files of this machine.
        remote: Remote::Part,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, gc::gc).await }),
    },
    Method {
        name: "quack.daemon",
        // Reason: reads.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { reply(r, daemon::daemon(c).await) }),
    },
    Method {
        name: "quack.restart",
        // Reason: without a service manager, a remote client could not start the daemon again.
        remote: Remote::Part,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, daemon::restart).await }),
    },
    Method {
        name: "quack.tree",
        // Reason: reads.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { reply(r, tree::tree(c).await) }),
    },
    Method {
        name: "quack.pin",
        // Reason: affects one session, and is reversible.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, pin::pin).await }),
    },
    Method {
        name: "quack.kill",
        // Reason: ends work of a session that abort cannot end.
        remote: Remote::All,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, kill::kill).await }),
    },
    Method {
        name: "quack.shutdown",
        // Reason: a remote client could not start the daemon again.
        remote: Remote::Nothing(|| MethodError::LocalStop),
        order: Order::InOrder,
        run: |r, c| {
            Box::pin(async move {
                {
                    daemon::stop(c, StopRequest::Shutdown);
                    done(r)
                }
            })
        },
    },
    Method {
        name: "voice_connect",
        // Reason: affects only the client itself.
        remote: Remote::All,
        order: Order::InOrder,
        run: |r, c| Box::pin(async move { answered(r, c, voice::voice_connect).await }),
    },
    Method {
        name: "voice_start",
        // Reason: phones are voice clients.
        remote: Remote::All,
        order: Order::InOrder,
        run: |r, c| Box::pin(async move { answered(r, c, voice::voice_start).await }),
    },
    Method {
        name: "voice_state",
        // Reason: affects only the client itself.
        remote: Remote::All,
        order: Order::InOrder,
        run: |r, c| {
            Box::pin(async move {
                match voice::voice_state(r, c).await {
                    Ok(()) => done(r),
                    Err(error) => wire::failure(r.id.as_ref(), &error.to_string()),
                }
            })
        },
    },
    Method {
        name: "remote_status",
        // Reason: a client that used the token does not get it back.
        remote: Remote::Part,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, remote::remote_status).await }),
    },
    Method {
        name: "remote_configure",
        // Reason: only local clients change remote control.
        remote: Remote::Part,
        order: Order::Concurrent,
        run: |r, c| Box::pin(async move { answered(r, c, remote::remote_configure).await }),
    },
];

/// Prefix of quackd's own methods. All others are upstream's.
const OURS: &str = "quack.";

/// Checks whether a client may call a method, and the parameter names of quackd's own methods. Upstream ignores unknown
/// parameters of its methods, and so does quackd.
///
/// # Errors
/// The refusal of a remote client, and `Params`.
pub(super) fn admit(
    method: &Method,
    request: &ParsedRequest,
    transport: Transport,
) -> Result<(), MethodError> {
    if let (Remote::Nothing(refusal), Transport::RemoteWs | Transport::RemoteHttp) =
        (method.remote, transport)
    {
        return Err(refusal());
    }
    let method = method.name;
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

/// Parameter names of each of quackd's own methods, from its schema.
static PARAMETERS: LazyLock<HashMap<&'static str, Vec<String>>> = LazyLock::new(|| {
    let ours = METHODS.iter().map(|method| method.name).filter(|name| name.starts_with(OURS));
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

    fn admit(request: &ParsedRequest, transport: Transport) -> Result<(), MethodError> {
        Method::find(&request.method).map_or(Ok(()), |it| super::admit(it, request, transport))
    }

    fn request(method: &str, params: &str) -> ParsedRequest {
        let line = format!("{{\"method\":\"{method}\",\"params\":{params}}}");
        wire::parse(line.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn every_method_has_a_row_and_no_row_is_without_a_method() {
        let (methods, _) = quackd_protocol::schema::wire::names();
        let rows: Vec<_> = METHODS.iter().map(|method| method.name).collect();
        assert_eq!(rows, methods);
    }

    /// Here a row does nothing: the methods themselves refuse. tests/black_box/remote.rs asks each of these for what
    /// is not for remote clients (`the_token_neither_stops_the_daemon_nor_widens_what_sessions_may_do`; of
    /// `remote_status`, `a_single_request_may_speak_for_a_websocket_and_for_nobody_else`).
    #[test]
    fn what_methods_refuse_themselves_is_what_the_tests_of_the_whole_daemon_ask_for() {
        let parts = METHODS.iter().filter(|method| matches!(method.remote, Remote::Part));
        let parts: Vec<_> = parts.map(|method| method.name).collect();
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
        for Method { name: method, remote, .. } in METHODS {
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
        for Method { name: method, .. } in METHODS {
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
