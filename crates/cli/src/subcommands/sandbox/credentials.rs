//! Credentials in `quack sandbox show`, and `quack sandbox explain USE`.

use super::request::ask;
use crate::args::SessionArgs;
use crate::display::plain;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::session_ref::Missing;
use quackd_protocol::approval::{ApprovalKind, Decision, ScopedGrant};
use quackd_protocol::client::{SandboxData, SandboxShow};
use quackd_protocol::credentials::{CredentialUse, UsableCredentials};
use quackd_protocol::denial::{of_session, quoted};
use quackd_protocol::limits::REPLY_TIMEOUT;
use serde::Serialize;

/// Returns the value of the row `credentials`.
pub(super) fn in_words(usable: UsableCredentials) -> String {
    let words = match (usable.ssh, usable.git) {
        (true, true) => "ssh, git over https",
        (true, false) => "ssh",
        (false, true) => "git over https",
        (false, false) => "not available to this session",
    };
    words.to_owned()
}

/// Data of `quack sandbox explain USE --json`.
#[derive(Debug, Serialize)]
struct Explained<'a> {
    #[serde(rename = "use")]
    used: String,
    /// Whether commands of the running worker can ask for it. `None` without a worker.
    usable: Option<bool>,
    /// The grant that decides. `None`: the user is asked.
    grant: Option<&'a ScopedGrant>,
}

/// Prints the grant that decides about the use of a credential, and the command that changes it.
pub(super) async fn explain(
    used: &CredentialUse,
    choice: &SessionArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let params = |session| SandboxShow { session };
    let data = ask(choice, Missing::Refuse, params, REPLY_TIMEOUT, output).await?;
    let usable = data.credentials.map(|usable| is_usable(used, usable));
    let explained =
        Explained { used: used.to_string(), usable, grant: deciding(used, &data.grants) };
    output.show(&explained, || text(&explained, used, &data))?;
    Ok(ExitCode::Ok)
}

fn is_usable(used: &CredentialUse, usable: UsableCredentials) -> bool {
    match used {
        CredentialUse::Ssh { .. } | CredentialUse::Sign => usable.ssh,
        CredentialUse::Fetch(_) | CredentialUse::Push(_) => usable.git,
    }
}

/// Returns the grant that decides about a use: one that denies it, else one that allows it.
fn deciding<'a>(used: &CredentialUse, grants: &'a [ScopedGrant]) -> Option<&'a ScopedGrant> {
    let has = |decision: Decision| {
        grants.iter().find(|ScopedGrant { grant, .. }| {
            let target = grant.target.parse::<CredentialUse>();
            grant.kind == ApprovalKind::Credential
                && grant.decision == decision
                && target.is_ok_and(|target| match decision {
                    Decision::Allow => target.includes(used),
                    Decision::Deny => target == *used,
                })
        })
    };
    has(Decision::Deny).or_else(|| has(Decision::Allow))
}

fn text(explained: &Explained<'_>, used: &CredentialUse, data: &SandboxData) -> String {
    let (used_as, of) = (plain(&explained.used), of_session(&plain(&data.label)));
    if explained.usable == Some(false) {
        return format!(
            "{used_as}: not available to this session (its tier, its network, or credentials.ssh and credentials.git in \
             the configuration)\n"
        );
    }

    let mut text = match explained.grant {
        Some(ScopedGrant { scope, grant }) => {
            let decision = match grant.decision {
                Decision::Allow => "allowed",
                Decision::Deny => "denied",
            };
            let (id, scope) = (plain(&grant.id), scope.in_words());
            format!(
                "{used_as}: {decision} {scope} by {id}\n  to change it: quack sandbox revoke {id}{of}\n"
            )
        }
        None => format!(
            "{used_as}: not allowed yet. quackd asks at the first use if sandbox.ask has credential and a client can \
             answer\n  to allow it: quack sandbox allow --credential {}{of}\n",
            quoted(&used_as)
        ),
    };

    if let Some((host, port)) = used.host() {
        text.push_str(&format!(
            "  it also needs the host: quack sandbox explain {host}:{port}{of}\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn explained(text: &str, grants: &serde_json::Value) -> Option<String> {
        let grants: Vec<ScopedGrant> = from_value(grants.clone()).unwrap();
        deciding(&text.parse().unwrap(), &grants).map(|scoped| scoped.grant.id.clone())
    }

    #[test]
    fn a_denial_wins_over_a_grant_and_a_push_includes_a_fetch() {
        let grant = |id: &str, kind: &str, target: &str, decision: &str| json!({"scope": "session", "id": id, "kind": kind, "target": target, "decision": decision, "at": ""});
        let grants = json!([
            grant("g1", "network", "fetch github.com/me/app", "allow"),
            grant("g2", "credential", "push github.com/me/app", "allow"),
            grant("g3", "credential", "ssh git@github.com", "allow"),
            grant("g4", "credential", "ssh git@github.com", "deny"),
            grant("g5", "credential", "not a use", "allow"),
            grant("g6", "credential", "push git.example/a", "deny"),
            grant("g7", "credential", "fetch git.example/a", "allow"),
        ]);
        for (used, id) in [
            ("fetch github.com/me/app", Some("g2")),
            ("push github.com/me/app", Some("g2")),
            ("push github.com/me/other", None),
            ("ssh git@github.com", Some("g4")),
            ("push git.example/a", Some("g6")),
            ("fetch git.example/a", Some("g7")),
            ("sign commits", None),
        ] {
            assert_eq!(explained(used, &grants).as_deref(), id, "{used}");
        }
    }
}
