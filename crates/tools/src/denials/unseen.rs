//! Explains failures that look like mistakes of the command, because the session does not see something of the user:
//! directories, ssh keys, servers of this machine.

use super::names::candidates;
use super::phrases::{DenialCause, hits};
use crate::Confinement;
use quackd_protocol::denial::{of_session, one_line, quoted, writable_change};
use std::path::Path;

/// Texts of ssh and its tools without keys or an agent.
const NO_KEYS: [&str; 3] =
    ["connection to your authentication agent", "permission denied (publickey", "/.ssh/"];

/// Texts of git without the key to sign.
const NOT_SIGNED: [&str; 4] = [
    "gpg failed to sign the data",
    "gpg: signing failed",
    "error: Couldn't get agent socket",
    "error: unable to sign the tag",
];

/// Text of the program that signs for git if the user's ssh agent does not have the key.
const NOT_IN_AGENT: &str = "Couldn't find key in agent";

/// Texts of a refused connection.
const REFUSED: [&str; 3] = ["connection refused", "econnrefused", "couldn't connect to server"];

/// Names of the loopback with the text before a port.
const LOOPBACK: [&str; 4] = ["localhost port ", "127.0.0.1 port ", "localhost:", "127.0.0.1:"];

/// Variable with the socket of an ssh agent.
pub(super) const AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";

/// Returns the line about the first thing that the session does not see. `workspace` is that of the session. With an ssh
/// agent in it, another reason than missing keys is more likely.
pub(super) fn line_blocking(
    text: &str,
    workspace: &Path,
    has_agent: bool,
    confinement: &Confinement,
) -> Option<String> {
    let (session, is_far) = (confinement.session.as_str(), confinement.is_far);
    let ssh = if has_agent { None } else { ssh(text, session, is_far) };
    ssh.or_else(|| signing(text, session))
        .or_else(|| directory_blocking(text, workspace, session, is_far))
        .or_else(|| if confinement.policy.network { None } else { this_machine(text, session) })
}

fn ssh(text: &str, session: &str, is_far: bool) -> Option<String> {
    let is_about_keys = |line: &str| {
        let line = line.to_ascii_lowercase();
        NO_KEYS.iter().any(|words| line.contains(words)) && !line.contains(".pub")
    };
    let agent = if is_far {
        "Run this command yourself in a terminal"
    } else {
        "With credentials.ssh = true, in tiers A and B and unless the network is on, ssh and git can use your agent. Else run \
         this command yourself in a terminal"
    };
    text.lines().any(is_about_keys).then(|| {
        format!(
            "[Sandbox: your ssh keys and your ssh agent are not in the session. {agent}; `quack sandbox show{}` lists what the \
             session may do]",
            of_session(session)
        )
    })
}

/// A key with which git signs.
fn signing(text: &str, session: &str) -> Option<String> {
    if text.contains(NOT_IN_AGENT) {
        let line = "[Sandbox: your ssh agent does not have the key with which your git signs. Add it in a terminal of \
                    yours: ssh-add FILE]";
        return Some(line.to_owned());
    }
    text.lines().any(|line| NOT_SIGNED.iter().any(|words| line.contains(words))).then(|| {
        format!(
            "[Sandbox: the key with which your git signs is not in the session, and no setting shows it. Run this command \
             yourself in a terminal, or let it not sign: git commit --no-gpg-sign; `quack sandbox show{}` lists what the \
             session may do]",
            of_session(session)
        )
    })
}

/// A directory outside of the workspace that does not exist in the worker's view.
fn directory_blocking(text: &str, workspace: &Path, session: &str, is_far: bool) -> Option<String> {
    let all = hits(text);
    let missing = all.iter().filter(|hit| hit.cause == DenialCause::Missing);
    let mut named = missing.filter_map(|hit| candidates(hit).into_iter().next());

    named.find_map(|name| {
        let path = Path::new(&name);
        let is_unseen = path.is_absolute()
            && !path.starts_with(workspace)
            && path.parent().is_some_and(|above| !above.exists());
        let change = writable_change(&name, session).filter(|_| is_unseen)?;

        let change = if is_far {
            String::new()
        } else {
            format!(". To show its directory and allow writing there: {change}")
        };

        Some(format!(
            "[Sandbox: {} is not in the session, if it exists: the session sees its workspace and the system. `quack sandbox \
             explain {}{}` shows the reason{change}]",
            one_line(&name),
            quoted(&one_line(&name)),
            of_session(session)
        ))
    })
}

/// A port of the loopback, which is the session's own.
fn this_machine(text: &str, session: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.to_ascii_lowercase();
        if !REFUSED.iter().any(|words| line.contains(words)) {
            return None;
        }

        let port = LOOPBACK.iter().find_map(|name| {
            let rest = line.split_once(name)?.1;
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.get(..end)?.parse::<u16>().ok()
        })?;

        Some(format!(
            "[Sandbox: localhost is the session itself, which has no server on port {port}; servers of this machine are not \
             reached. `quack sandbox explain localhost:{port}{}` shows the reason]",
            of_session(session)
        ))
    })
}

/// The line about another clone whose objects a repository needs.
pub(super) fn alternate_line(directory: &str) -> String {
    format!(
        "[Sandbox: this repository is not complete: it reads objects of {}, which the session does not see. To complete it, \
         outside of the session: git repack -a -d && rm .git/objects/info/alternates]",
        one_line(directory)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::policy::Policy;

    fn confinement() -> Confinement {
        Confinement::new(Policy::default(), true, "app".to_owned())
    }

    fn line(text: &str) -> Option<String> {
        line_blocking(text, Path::new("/w/app"), false, &confinement())
    }

    #[test]
    fn on_another_machine_no_line_proposes_a_change_that_is_refused() {
        let far = confinement().with_far(true);
        for text in [
            "cat: /home/me/.ssh/id_rsa: No such file or directory",
            "ls: cannot access '/no/such/place/x': No such file or directory",
        ] {
            let line = line_blocking(text, Path::new("/w/app"), false, &far).unwrap();
            let has_change = line.contains("credentials.ssh") || line.contains("--writable");
            assert!(!has_change, "{line}");
        }
    }

    #[test]
    fn what_the_session_does_not_see_is_named_with_a_command() {
        let keys = line("cat: /home/me/.ssh/id_rsa: No such file or directory").unwrap();
        assert!(keys.contains("your ssh keys") && !keys.contains("--writable"), "{keys}");
        let refused = "git@a.example: Permission denied (publickey).";
        assert!(line(refused).is_some());
        assert_eq!(line_blocking(refused, Path::new("/w/app"), true, &confinement()), None);
        let unsigned =
            "error: gpg failed to sign the data:\n\nfatal: failed to write commit object";
        assert!(line(unsigned).unwrap().contains("git commit --no-gpg-sign"));
        let not_added =
            "error: Couldn't find key in agent?\n\nfatal: failed to write commit object";
        assert!(line(not_added).unwrap().contains("ssh-add FILE"));
        let other =
            line("ls: cannot access '/no/such/place/x': No such file or directory").unwrap();
        assert!(
            other.ends_with("To show its directory and allow writing there: quack sandbox set --writable /no/such/place --session app]"),
            "{other}"
        );
        for text in [
            "curl: (7) Failed to connect to localhost port 9999 after 0 ms: Couldn't connect to server",
            "Error: connect ECONNREFUSED 127.0.0.1:9999",
        ] {
            let server = line(text).unwrap();
            assert!(
                server.contains("quack sandbox explain localhost:9999 --session app"),
                "{server}"
            );
        }
    }

    #[test]
    fn other_failures_stay_as_they_are() {
        for text in [
            "cat: x: No such file or directory",
            "cat: /w/app/no/x: No such file or directory",
            "cat: /etc/none/x: No such file or directory",
            "cat: /home/me/.config/gh/x: No such file or directory",
            "curl: (7) Failed to connect to a.example port 80: Connection refused",
        ] {
            assert_eq!(line(text), None, "{text}");
        }
    }
}
