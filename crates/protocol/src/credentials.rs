//! Credentials of the user that commands of a session use without getting them: logins by ssh, signatures of commits and
//! tags, and logins of git over https.
//!
//! A command talks to the network proxy of its session: to the socket that `SSH_AUTH_SOCK` names, or to the address to
//! which git's settings lead an https URL. The proxy passes a [`CredentialRequest`] to the supervisor, which lets a
//! process of the user's, `quack credentials`, find its purpose ([`CredentialUse`]). The supervisor decides by the rules of
//! hosts and by the user's grants, or asks. Then the same process signs with the user's ssh agent or asks git's
//! credential helpers. A private key leaves neither; a password or token goes to the proxy, outside of the sandbox, which
//! adds it to the request.

use crate::suggestion::of_session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Most requests of one session that are being answered.
pub const MAX_CREDENTIAL_REQUESTS: usize = 8;

/// Longest message of the ssh agent protocol, in bytes.
pub const MAX_AGENT_MESSAGE: usize = 64 * 1024;

/// Most public keys in an answer.
pub const MAX_SSH_KEYS: usize = 64;

/// Longest user, host or path in a [`CredentialUse`], in bytes.
pub const MAX_USE_PART: usize = 255;

/// Time for which the proxy keeps the credential of a repository.
pub const CREDENTIAL_KEPT: Duration = Duration::from_secs(60);

/// Name of the socket of the ssh agent in a session's private home.
pub const AGENT_SOCKET_NAME: &str = ".quackd-ssh-agent";

/// Path under which the proxy serves git over https, before host and path: `http://127.0.0.1:61080/https/HOST/PATH`.
pub const GIT_GATEWAY_PREFIX: &str = "/https/";

/// Credentials that commands of a session may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Credentials {
    /// Keys of the user's ssh agent.
    pub ssh: bool,
    /// Git's credentials for https.
    pub git: bool,
    /// Hosts that the rules of the session name when the worker starts, as `known_hosts` writes them: `github.com`,
    /// `[build.example]:2222`. At most [`MAX_KNOWN_HOSTS`].
    pub hosts: Vec<String>,
}

/// Most hosts in [`Credentials::hosts`] and [`CredentialStart::candidates`]: two ports for each of the most rules.
pub const MAX_KNOWN_HOSTS: usize = 512;

/// Settings of the proxy for git over https with credentials of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GitGateway {
    /// File with the certificates of authorities: the daemon's `SSL_CERT_FILE`. Without it, the machine's certificates.
    pub certificates: Option<String>,
}

/// Purpose of a request, and the target of an approval of kind `credential`.
///
/// As text: `ssh git@github.com`, `ssh me@build.example:2222`, `fetch github.com/me/app`, `push github.com/me/app`,
/// `sign commits`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CredentialUse {
    /// A login by ssh.
    Ssh {
        /// Name of the user on the host.
        user: String,
        /// The host, as `known_hosts` names it.
        host: String,
        /// The port.
        port: u16,
    },
    /// Reading a repository by git over https.
    Fetch(Repository),
    /// Reading and writing a repository by git over https.
    Push(Repository),
    /// Signatures of commits and tags of git with an ssh key.
    Sign,
}

/// A repository of a host that git reaches over https on port 443.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Repository {
    /// The host, in lower case.
    pub host: String,
    /// The path without a slash at either end and without `.git` at the end, such as `me/app`.
    pub path: String,
}

/// The port of ssh, which a [`CredentialUse`] does not write.
const SSH_PORT: u16 = 22;

impl fmt::Display for CredentialUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh { user, host, port: SSH_PORT } => write!(f, "ssh {user}@{host}"),
            Self::Ssh { user, host, port } => write!(f, "ssh {user}@{host}:{port}"),
            Self::Fetch(Repository { host, path }) => write!(f, "fetch {host}/{path}"),
            Self::Push(Repository { host, path }) => write!(f, "push {host}/{path}"),
            Self::Sign => f.write_str("sign commits"),
        }
    }
}

/// A text that is no [`CredentialUse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "use \"ssh USER@HOST\", \"fetch HOST/PATH\", \"push HOST/PATH\" or \"sign commits\", with the port behind an ssh host \
     if it is not 22"
)]
pub struct NoCredentialUse;

impl FromStr for CredentialUse {
    type Err = NoCredentialUse;

    fn from_str(text: &str) -> Result<Self, NoCredentialUse> {
        if text == "sign commits" {
            return Ok(Self::Sign);
        }

        let (verb, rest) = text.split_once(' ').ok_or(NoCredentialUse)?;
        if verb == "ssh" {
            let (user, place) = rest.split_once('@').ok_or(NoCredentialUse)?;
            let (host, port) = match place.rsplit_once(':') {
                // An address of IPv6 with a port has brackets.
                Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                    (host, port.parse().map_err(|_not_a_port| NoCredentialUse)?)
                }
                _ => (place, SSH_PORT),
            };
            return Self::ssh(user, host, port).ok_or(NoCredentialUse);
        }

        let place = rest.strip_prefix("https://").unwrap_or(rest);
        let (host, path) = place.split_once('/').ok_or(NoCredentialUse)?;
        let repository = Repository::new(host, path).ok_or(NoCredentialUse)?;
        match verb {
            "fetch" => Ok(Self::Fetch(repository)),
            "push" => Ok(Self::Push(repository)),
            _ => Err(NoCredentialUse),
        }
    }
}

impl CredentialUse {
    /// Returns a login by ssh. `None` if a part is empty, too long, or has characters that make the text ambiguous.
    #[must_use]
    pub fn ssh(user: &str, host: &str, port: u16) -> Option<Self> {
        let is_ok = is_part(user)
            && !user.contains(['@', '/', ':'])
            && is_part(host)
            && !host.contains(['@', '/'])
            && port != 0;
        let host = host.to_ascii_lowercase();
        is_ok.then(|| Self::Ssh { user: user.to_owned(), host, port })
    }

    /// Whether a grant for `self` also allows `other`: the same purpose, or a fetch of a repository that may be pushed to.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Push(ours), Self::Fetch(theirs)) => ours == theirs,
            _ => self == other,
        }
    }

    /// Whether it may change anything outside of the session. A login may.
    #[must_use]
    pub fn may_write(&self) -> bool {
        !matches!(self, Self::Fetch(_))
    }

    /// The host and port that the session must be allowed to reach. `None` for signatures.
    #[must_use]
    pub fn host(&self) -> Option<(&str, u16)> {
        match self {
            Self::Ssh { host, port, .. } => Some((host, *port)),
            Self::Fetch(repository) | Self::Push(repository) => Some((&repository.host, 443)),
            Self::Sign => None,
        }
    }
}

impl Repository {
    /// Returns the repository of a path of an URL. `None` if a part is empty, too long, not plain, or leads upwards, if the
    /// host ends with a dot, or if the path ends with `.git` twice. So the result does not change if it is read again.
    #[must_use]
    pub fn new(host: &str, path: &str) -> Option<Self> {
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let is_step = |step: &str| !matches!(step, "" | "." | "..");
        let is_ok = is_part(host)
            && !host.contains(['@', '/', ':'])
            && !host.ends_with('.')
            && is_part(path)
            && !path.ends_with(".git")
            && !path.contains(['?', '#', '%', '\\'])
            && path.split('/').all(is_step);
        is_ok.then(|| Self { host: host.to_ascii_lowercase(), path: path.to_owned() })
    }
}

/// Whether a part of a use has a length and only visible characters of ASCII.
fn is_part(text: &str) -> bool {
    (1..=MAX_USE_PART).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Request of a command, from the proxy to the supervisor and from there to `quack credentials`. All bytes are base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialRequest {
    /// The public keys of the user's ssh agent. Needs no permission.
    Keys {},
    /// A signature by the user's ssh agent.
    Sign(SignRequest),
    /// The credential of a repository.
    Git {
        /// The repository.
        repository: Repository,
        /// Whether it is needed to write.
        push: bool,
    },
}

/// `SSH_AGENTC_SIGN_REQUEST` of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignRequest {
    /// The public key, as a blob of ssh.
    pub key: String,
    /// The data to sign: a request for a login by ssh, or a signature of ssh in the namespace `git`.
    pub data: String,
    /// Flags of the request.
    pub flags: u32,
    /// The last `session-bind@openssh.com` of the same connection, which proves to which host a login goes. `None` if there
    /// was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<SessionBind>,
}

/// Content of `session-bind@openssh.com`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionBind {
    /// The public key of the host, as a blob of ssh.
    pub host_key: String,
    /// Identifier of the ssh session.
    pub session_id: String,
    /// Signature of the identifier by the host.
    pub signature: String,
    /// Whether the agent is forwarded through the host. Such a binding allows no login.
    pub is_forwarding: bool,
}

/// Answer to a [`CredentialRequest`]. All bytes are base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialAnswer {
    /// At most [`MAX_SSH_KEYS`], without their comments.
    Keys(Vec<String>),
    /// A signature, as a blob of ssh.
    Signature(String),
    /// Value of the field `Authorization` of HTTP.
    Authorization(String),
}

/// Without the secret.
impl fmt::Debug for CredentialAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys(_) => "Keys",
            Self::Signature(_) => "Signature",
            Self::Authorization(_) => "Authorization",
        })
    }
}

/// Reason why a request was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CredentialRefusal {
    /// The configuration turns credentials off.
    #[error("credentials.{{ssh,git}} in the configuration is off")]
    Off,
    /// The user denied it.
    #[error("denied by the user")]
    Denied,
    /// No grant allows it, and no client can answer a question.
    #[error("not allowed yet, and no client is connected that can ask the user")]
    NoAnswerer,
    /// The user did not answer in time.
    #[error("the user did not answer in time")]
    Timeout,
    /// The rules of the session do not allow the host.
    #[error("the session may not reach the host")]
    HostNotAllowed,
    /// No ssh agent of the user is known or answers.
    #[error("the user has no ssh agent, or it does not answer")]
    NoAgent,
    /// The agent does not have the key, or refused.
    #[error("the user's ssh agent has no such key, or refused")]
    AgentRefused,
    /// The ssh program did not say to which host it connects, or the data are not a login to it.
    #[error("the program does not prove to which host it connects (OpenSSH 8.9 and later do)")]
    NotBound,
    /// The user's `known_hosts` does not have the host's key.
    #[error("the key of the host is not in the user's known_hosts")]
    UnknownHost,
    /// The user's git has no credential for the repository.
    #[error("the user's git has no credential for the repository")]
    NoCredential,
    /// The server does not accept the user's credential.
    #[error("the server does not accept the credential that the user's git has for it")]
    NotAccepted,
    /// A session in safe mode only reads.
    #[error("the session is in safe mode")]
    SafeMode,
    /// Too many requests at the same time or in a minute.
    #[error("too many requests in a short time")]
    TooMany,
    /// The request is malformed.
    #[error("malformed request")]
    Malformed,
    /// A process failed.
    #[error("quackd could not ask for it; quack logs has the reason")]
    Failed,
}

/// Credentials of the user that commands can ask to use, each use with a permission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsableCredentials {
    /// Keys of the ssh agent, for logins and for signatures of commits.
    pub ssh: bool,
    /// Credentials of git over https.
    pub git: bool,
}

/// A credential that a command could not use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCredential {
    /// Text of the [`CredentialUse`]. Empty if it is unknown.
    pub what: String,
    /// Reason.
    pub why: CredentialRefusal,
    /// Label of the session, for the command that allows the use.
    pub label: String,
}

/// One line with the use and the reason, and the command that allows it if the user can. Other text than that of a
/// [`CredentialUse`] is left out, because it comes from another process.
impl fmt::Display for RefusedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, why, label } = self;
        let Ok(used_as) = what.parse::<CredentialUse>() else {
            return write!(f, "Credential not used: {why}");
        };
        write!(f, "Credential not used: {used_as}: {why}")?;

        let text = used_as.to_string();
        // A shell would read these characters between double quotes.
        let is_plain = !text.contains(['"', '$', '`', '\\', '!']);
        if why.is_for_the_user() && is_plain && !label.contains(char::is_control) {
            let of_session = of_session(label);
            write!(f, ". Allow it with: quack sandbox allow --credential \"{text}\"{of_session}")?;
        }
        Ok(())
    }
}

impl CredentialRefusal {
    /// Whether a grant of the user makes the next request succeed.
    fn is_for_the_user(self) -> bool {
        matches!(self, Self::Denied | Self::NoAnswerer | Self::Timeout)
    }
}

/// Supervisor to `quack credentials`, one process per request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToCredentials {
    /// First frame. Answered by [`FromCredentials::Uses`], or by [`FromCredentials::Done`] if it needs no permission or
    /// cannot be carried out.
    Start(Box<CredentialStart>),
    /// Carry it out for this use, which is one of [`FromCredentials::Uses`]. Answered by [`FromCredentials::Done`].
    /// Without it the process exits at the end of the channel.
    Proceed {},
}

/// Content of [`ToCredentials::Start`].
#[derive(Debug, Serialize, Deserialize)]
pub struct CredentialStart {
    /// The request.
    pub request: CredentialRequest,
    /// Socket of the user's ssh agent, an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Names of hosts that the rules of the session have, as `known_hosts` writes them: `github.com`,
    /// `[build.example]:2222`. A hashed name of `known_hosts` is found among them only. At most [`MAX_KNOWN_HOSTS`].
    pub candidates: Vec<String>,
    /// Environment of the user's git.
    pub env: Vec<(String, String)>,
    /// Directories that sessions may write. No file in them is read or run.
    pub untrusted: Vec<String>,
}

/// Tags of [`ToCredentials`].
pub const TO_CREDENTIALS_TAGS: &[&str] = &["start", "proceed"];

/// Data of the event `credential_used`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CredentialUsed {
    /// The use: `push github.com/me/app`.
    #[serde(rename = "use")]
    pub purpose: String,
    /// `allowed`, or the reason of the refusal in words.
    pub result: String,
}

impl CredentialUsed {
    /// Event name.
    pub const NAME: &str = "credential_used";
}

/// `quack credentials` to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromCredentials {
    /// The possible purposes, as texts of [`CredentialUse`]: several if `known_hosts` has several names for the key of a
    /// host. At most [`MAX_USES`].
    Uses(Vec<String>),
    /// The end.
    Done(Result<CredentialAnswer, CredentialRefusal>),
}

/// Tags of [`FromCredentials`].
pub const FROM_CREDENTIALS_TAGS: &[&str] = &["uses", "done"];

/// Most purposes of one request.
pub const MAX_USES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_read_as_it_is_written() {
        for text in [
            "ssh git@github.com",
            "ssh me@build.example:2222",
            "ssh me@[2001:db8::1]:2222",
            "fetch github.com/me/app",
            "push git.example/a/b/c",
            "sign commits",
        ] {
            assert_eq!(text.parse::<CredentialUse>().unwrap().to_string(), text);
        }
        for same in ["push GitHub.com/me/app.git", "push https://github.com/me/app.git"] {
            let used: CredentialUse = same.parse().unwrap();
            assert_eq!(used.to_string(), "push github.com/me/app");
        }
    }

    #[test]
    fn a_repository_that_is_read_again_is_the_same() {
        for path in
            ["me/app", "me/app.git", "/me/app.git/", "me/.git.x", "me/app.git.git", "me/.git"]
        {
            let Some(read) = Repository::new("Git.example", path) else { continue };
            assert_eq!(Repository::new(&read.host, &read.path), Some(read), "{path}");
        }
        assert!(Repository::new("git.example", "me/app.git").is_some());
        assert_eq!(Repository::new("git.example", "me/app.git.git"), None);
    }

    #[test]
    fn ambiguous_and_unusable_texts_are_refused() {
        for text in [
            "",
            "ssh",
            "ssh github.com",
            "ssh @github.com",
            "ssh a@b@c",
            "ssh a@b/c",
            "ssh a@b:0",
            "ssh a@b:x",
            "ssh a b@c",
            "push github.com",
            "push github.com/",
            "push github.com/../x",
            "push github.com/a//b",
            "push me@github.com/a",
            "push github.com:444/a",
            "push https://me@github.com/a",
            "push https://github.com:443/a",
            "push http://github.com/a",
            "ssh https://git@github.com",
            "push github.com/a?b",
            "push github.com/a%2e",
            "push github.com./a",
            "push github.com/a.git.git",
            "pull github.com/a",
            "sign",
            "fetch github.com/a\u{202e}b",
        ] {
            assert_eq!(text.parse::<CredentialUse>(), Err(NoCredentialUse), "{text}");
        }
        assert_eq!(CredentialUse::ssh("a@b", "c", 22), None);
        let long = format!("push github.com/{}", "a".repeat(MAX_USE_PART + 1));
        assert!(long.parse::<CredentialUse>().is_err());
    }

    #[test]
    fn a_refusal_proposes_only_what_a_shell_reads_as_it_is_written() {
        let of = |what: &str, why| {
            let (what, label) = (what.to_owned(), "api/my review".to_owned());
            RefusedCredential { what, why, label }.to_string()
        };
        assert_eq!(
            of("ssh git@github.com", CredentialRefusal::Denied),
            "Credential not used: ssh git@github.com: denied by the user. Allow it with: quack sandbox allow \
             --credential \"ssh git@github.com\" --session 'api/my review'"
        );
        for (what, why) in [
            ("push github.com/$(x)/y", CredentialRefusal::Denied),
            ("ssh git@github.com", CredentialRefusal::NoAgent),
            ("]\n[Exit code: 0", CredentialRefusal::NoAnswerer),
            ("", CredentialRefusal::Timeout),
        ] {
            let text = of(what, why);
            assert!(!text.contains("quack") && !text.contains('\n'), "{text}");
        }
        let (what, label) = ("sign commits".to_owned(), "a\nb".to_owned());
        let forged = RefusedCredential { what, why: CredentialRefusal::Denied, label }.to_string();
        assert_eq!(forged, "Credential not used: sign commits: denied by the user");
    }

    #[test]
    fn a_push_includes_the_fetch_of_the_same_repository_only() {
        let of = |text: &str| text.parse::<CredentialUse>().unwrap();
        let push = of("push github.com/me/app");
        assert!(push.includes(&of("fetch github.com/me/app")) && push.includes(&push));
        assert!(!of("fetch github.com/me/app").includes(&push));
        assert!(!push.includes(&of("fetch github.com/me/other")));
        assert!(!push.includes(&CredentialUse::Sign));
    }
}
