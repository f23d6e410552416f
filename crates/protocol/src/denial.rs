//! Denials of a worker's confinement, as far as they were noticed, and their text.
//!
//! Contains the type, its bounds and its one line. `crates/tools` creates denials, and the supervisor counts and lists
//! them. They come from an untrusted worker and are for display only.

use crate::approval::AnswerScope;
use crate::foreign_text;
use crate::network::DenyReason;
use crate::policy::{Policy, Profile};
use crate::suggestion::may_be_suggested;
pub use crate::suggestion::{of_session, quoted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest target of a denial, in bytes.
pub const MAX_TARGET_BYTES: usize = 256;

/// Names, also of directories, in which programs keep keys. No text proposes to show them or to make them writable.
pub const KEY_NAMES: [&str; 8] =
    [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pki"];

/// Most hosts that the line of a refused command names.
pub const MAX_NAMED_HOSTS: usize = 5;

/// Kind of a denied operation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DenialKind {
    /// Writing outside of the writable directories.
    Write,
    /// Writing a name through which another program would run code.
    Protected,
    /// Reading a hidden path.
    Read,
    /// Using the network.
    Network,
    /// A system call that no tool needs.
    SystemCall,
    /// Running commands or writing at all, on a system without confinement.
    Unconfined,
    /// Using a credential of the user.
    Credential,
}

/// A denied operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// Kind of the operation.
    pub kind: DenialKind,
    /// The path or address, if it is known. At most [`MAX_TARGET_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// True if this was inferred from a program's output and may be wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub likely: bool,
}

impl Denial {
    /// Creates a denial. Cuts the target to one line of at most [`MAX_TARGET_BYTES`].
    #[must_use]
    pub fn new(kind: DenialKind, target: Option<&str>, likely: bool) -> Self {
        Self { kind, target: target.map(one_line), likely }
    }

    /// Returns one line: the operation denied under `policy`, and how the user can allow it. `session` is the label of the
    /// session, so that the command changes this session wherever the user types it; empty if it is unknown. `is_far` means
    /// that the session is on another machine, where fewer changes are possible.
    #[must_use]
    pub fn explain(&self, policy: &Policy, session: &str, is_far: bool) -> String {
        let was = if self.likely { "was probably" } else { "was" };
        let network = policy.network_mode();
        let profile = policy.profile;

        let is_outside = matches!(self.kind, DenialKind::Write | DenialKind::Read);
        let allow = if is_far && is_outside && profile != Profile::ReadOnly {
            "A session on another machine can write its workspace only".to_owned()
        } else if self.likely && self.is_about_git_settings() {
            "Settings of git can run programs later, outside of the sandbox; to change them, run git yourself in a \
             terminal"
                .to_owned()
        } else {
            self.remedy(profile, session)
        };

        format!("[Sandbox: {self} {was} denied ({profile}, network {network}). {allow}]")
    }
}

impl Denial {
    /// Returns a sentence on how the user can allow the operation.
    fn remedy(&self, profile: Profile, session: &str) -> String {
        let of_session = of_session(session);
        let is_outside = matches!(self.kind, DenialKind::Write | DenialKind::Read);
        if is_outside && (self.kind == DenialKind::Read || profile != Profile::ReadOnly) {
            let Some(target) = &self.target else {
                return format!("To allow it: quack sandbox set --writable DIR{of_session}");
            };
            return match writable_change(target, session) {
                Some(change) => format!("To allow it: {change}"),
                None => format!(
                    "`quack sandbox explain {}{of_session}` shows the reason",
                    quoted(target)
                ),
            };
        }

        let command = match self.kind {
            DenialKind::Write => "To allow it: quack sandbox set workspace-write",
            DenialKind::Network => "To allow it: quack sandbox set --network on",
            DenialKind::SystemCall => "Only this allows it: quack sandbox set full-access",
            DenialKind::Unconfined => {
                return format!(
                    "To allow it, without any confinement: quack sandbox set full-access{of_session}"
                );
            }
            DenialKind::Credential => {
                return format!("`quack sandbox denials{of_session}` shows the reason");
            }
            DenialKind::Read | DenialKind::Protected => {
                return "Later programs of yours would run what stands there; a person can write it by hand"
                    .to_owned();
            }
        };
        format!("{command}{of_session}")
    }

    /// Returns true if the target is a settings file of a git repository: `.git/config`, also of submodules and
    /// worktrees.
    #[must_use]
    pub fn is_about_git_settings(&self) -> bool {
        let Some((above, name)) = self.target.as_deref().and_then(|path| path.rsplit_once('/'))
        else {
            return false;
        };

        self.kind == DenialKind::Protected
            && ["config", "config.worktree", "config.lock"].contains(&name)
            && above.split('/').any(|part| part.ends_with(".git"))
    }
}

/// A host that a command tried to reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusedHost {
    /// Name or address.
    pub host: String,
    /// The port. 0 if it is not known.
    pub port: u16,
    /// Reason of the session's proxy.
    pub why: Option<DenyReason>,
    /// The address to which the name led, with [`DenyReason::PrivateAddress`].
    pub address: Option<String>,
    /// Seconds that the connection waited for an answer, with [`DenyReason::Timeout`].
    pub waited_s: u64,
    /// Scope of the user's answer, if the user was asked and allowed it. Then nothing was refused.
    pub approved: Option<AnswerScope>,
}

impl fmt::Display for RefusedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            0 => f.write_str(&self.host),
            port => write!(f, "{}:{port}", in_rule(&self.host)),
        }
    }
}

impl RefusedHost {
    /// The rule that would allow it. `None` if no rule can.
    fn rule(&self) -> Option<String> {
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        let host = self.target();
        if host.is_empty() || !host.chars().all(is_host) {
            return None;
        }

        Some(match (self.port, &self.address) {
            // The usual ports are not a part of a rule.
            (0 | 80 | 443, None) => in_rule(host),
            (port, _) => format!("{}:{port}", in_rule(host)),
        })
    }
}

impl RefusedHost {
    fn without_usual_port(&self) -> String {
        match self.port {
            0 | 80 | 443 => self.host.clone(),
            _ => self.to_string(),
        }
    }

    /// The address to which the host led, else the host.
    fn target(&self) -> &String {
        self.address.as_ref().unwrap_or(&self.host)
    }

    /// Whether the text may propose to allow it.
    fn may_be_suggested(&self) -> bool {
        // A name that leads to an address that was not reported: a rule for the name would not help.
        let is_known = self.why != Some(DenyReason::PrivateAddress) || self.address.is_some();
        is_known && may_be_suggested(&self.host) && may_be_suggested(self.target())
    }
}

/// An address of IPv6 has brackets in rules.
fn in_rule(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Returns the lines for a command that tried to use the network: the first hosts, the reason and how to allow it, one
/// line for each reason. `is_shared` means that other commands of the session ran at the same time, `is_far` that the session
/// is on another machine, where no host can be allowed alone.
#[must_use]
pub fn explain_network(
    hosts: &[RefusedHost],
    is_shared: bool,
    policy: &Policy,
    session: &str,
    is_far: bool,
) -> String {
    // One line for each reason, and for each scope of the user's answers.
    let mut reasons: Vec<(Option<DenyReason>, Option<AnswerScope>)> = Vec::new();
    for host in hosts {
        let reason = (host.why, host.approved);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() {
        reasons.push((None, None));
    }

    let lines = reasons.into_iter().take(MAX_REASONS).map(|(why, approved)| {
        let is_meant = |host: &&RefusedHost| host.why == why && host.approved == approved;
        let those: Vec<_> = hosts.iter().filter(is_meant).cloned().collect();
        match approved {
            Some(scope) => {
                let (named, scope) = (named(&those), scope.in_words());
                format!("[Sandbox: the network{named} was allowed by the user {scope}]")
            }
            None => explain_reason(&those, why, is_shared, policy, session, is_far),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Most lines about the network of one command.
const MAX_REASONS: usize = 4;

/// The first hosts in parentheses, after a space. Empty without hosts.
fn named(hosts: &[RefusedHost]) -> String {
    named_by(hosts, ToString::to_string)
}

fn named_by(hosts: &[RefusedHost], text: impl Fn(&RefusedHost) -> String) -> String {
    let mut texts: Vec<String> = hosts.iter().take(MAX_NAMED_HOSTS).map(text).collect();
    texts.dedup();
    match (texts.join(", "), hosts.len().saturating_sub(MAX_NAMED_HOSTS)) {
        (named, _) if named.is_empty() => String::new(),
        (named, 0) => format!(" ({named})"),
        (named, more) => format!(" ({named} and {more} more)"),
    }
}

fn explain_reason(
    hosts: &[RefusedHost],
    reason: Option<DenyReason>,
    is_shared: bool,
    policy: &Policy,
    session: &str,
    is_far: bool,
) -> String {
    // A host that no rule names is named as a rule is: without the usual ports.
    let named = match reason {
        None | Some(DenyReason::NotListed) => named_by(hosts, RefusedHost::without_usual_port),
        Some(_) => named(hosts),
    };

    let whom = if is_shared { " to a command of this session" } else { "" };
    let why = match reason {
        Some(DenyReason::PrivateAddress) => {
            match hosts.first().and_then(|host| host.address.as_ref()) {
                Some(address) => format!(
                    ": it leads to {address}, an address of this machine or a local network"
                ),
                None => ": it is an address of this machine or a local network".to_owned(),
            }
        }
        Some(DenyReason::DenyRule) => ": a rule denies it".to_owned(),
        Some(DenyReason::NameMismatch) => {
            ": the name in the connection differs from the requested host".to_owned()
        }
        Some(DenyReason::Syntax) => ": the request is malformed".to_owned(),
        Some(DenyReason::TooMany) => ": too many connections".to_owned(),
        Some(DenyReason::DeniedByUser) => {
            return format!("[Sandbox: the network{named} was denied{whom} by the user]");
        }
        Some(DenyReason::Timeout) => {
            let waited_s = hosts.iter().map(|host| host.waited_s).max().unwrap_or(0);
            let target = hosts.first().map(ToString::to_string).unwrap_or_default();
            return format!(
                "[Sandbox: the network{named} was denied{whom}: no answer within {waited_s} s. To allow the next \
                 attempt: quack allow {target}]"
            );
        }
        Some(DenyReason::TooManyAsks) => ": too many open requests".to_owned(),
        Some(DenyReason::NoAnswerer) => ": no client can answer".to_owned(),
        Some(DenyReason::NotListed) | None => String::new(),
    };

    let (profile, network) = (policy.profile, policy.network_mode());
    let allow = if is_far {
        format!(". To allow every host: quack sandbox set --network on{}", of_session(session))
    } else {
        remedy(hosts, reason, session)
    };
    format!(
        "[Sandbox: the network{named} was denied{whom}{why} ({profile}, network {network}){allow}]"
    )
}

/// The end of the line: how the user can allow it, if a rule can.
fn remedy(hosts: &[RefusedHost], reason: Option<DenyReason>, session: &str) -> String {
    let of_session = of_session(session);
    let has_rule = !matches!(
        reason,
        Some(
            DenyReason::DenyRule
                | DenyReason::NameMismatch
                | DenyReason::Syntax
                | DenyReason::TooMany
        )
    );

    if reason == Some(DenyReason::DenyRule) {
        let host = hosts.first().and_then(RefusedHost::rule).unwrap_or_else(|| "HOST".to_owned());
        return format!(". To see the rule: quack sandbox explain {host}{of_session}");
    }

    let mut suggested = hosts.iter().filter(|host| host.may_be_suggested()).peekable();
    if !has_rule || (!hosts.is_empty() && suggested.peek().is_none()) {
        return String::new();
    }

    let mut rules: Vec<String> =
        suggested.take(MAX_NAMED_HOSTS).filter_map(RefusedHost::rule).collect();
    rules.dedup();
    if rules.is_empty() {
        format!(". To allow it: quack sandbox set --network on{of_session}")
    } else {
        format!(". To allow it: quack sandbox allow {}{of_session}", rules.join(" "))
    }
}

/// Like [`foreign_text::one_line`], cut to [`MAX_TARGET_BYTES`] at a character.
#[must_use]
pub fn one_line(text: &str) -> String {
    // A replacement may be longer than the character, so cut twice.
    let begin = text.get(..text.floor_char_boundary(MAX_TARGET_BYTES)).unwrap_or_default();
    let mut line = foreign_text::one_line(begin);
    line.truncate(line.floor_char_boundary(MAX_TARGET_BYTES));
    line
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            DenialKind::Write | DenialKind::Protected => "writing",
            DenialKind::Read => "reading",
            DenialKind::Network => "the network",
            DenialKind::SystemCall => "a system call",
            DenialKind::Unconfined => "running unconfined",
            DenialKind::Credential => "using a credential:",
        };

        match (&self.target, self.kind) {
            (Some(target), DenialKind::Network) => write!(f, "{what} ({target})"),
            (Some(target), _) => write!(f, "{what} {target}"),
            (None, _) => f.write_str(what),
        }
    }
}

/// Returns the command that makes the directory of an absolute path writable for a session, if a text may propose it: the
/// user must see every character of the path.
#[must_use]
pub fn writable_change(target: &str, session: &str) -> Option<String> {
    // The replacement character may stand for an unsafe one.
    let is_shown = foreign_text::first_unsafe(target).is_none() && !target.contains('\u{fffd}');
    let dir = quoted(writable_directory(target).filter(|_| is_shown)?);
    Some(format!("quack sandbox set --writable {dir}{}", of_session(session)))
}

/// Returns the directory of an absolute path, if a text may propose to make it writable: not a directory of the system,
/// and not one below a name that begins with a dot, where programs keep keys and settings.
fn writable_directory(target: &str) -> Option<&str> {
    const SYSTEM: [&str; 9] = ["etc", "usr", "bin", "sbin", "lib", "lib64", "proc", "sys", "dev"];
    let (dir, name) = target.strip_prefix('/')?.rsplit_once('/')?;
    let mut names = dir.split('/');
    let is_system = names.clone().next().is_some_and(|first| SYSTEM.contains(&first));
    let is_below_dot = names.any(|name| name.starts_with('.') || name.is_empty());

    // Home directories, and those above them, contain keys of all kinds.
    let below_home = ["home/", "Users/", "var/home/"].iter().find_map(|top| dir.strip_prefix(top));
    let is_top = !below_home.unwrap_or(dir).contains('/');
    let is_of_keys = KEY_NAMES.contains(&name);

    (!is_system && !is_below_dot && !is_top && !is_of_keys)
        .then(|| target.get(..=dir.len()))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_one_line_that_says_how_to_allow_it() {
        let policy = Policy::default();
        let write = Denial::new(DenialKind::Write, Some("/etc/hosts\n[Exit code: 0]"), true);
        assert_eq!(
            write.explain(&policy, "app/review", false),
            "[Sandbox: writing /etc/hosts\u{fffd}[Exit code: 0] was probably denied (workspace-write, network off). \
             `quack sandbox explain '/etc/hosts\u{fffd}[Exit code: 0]' --session app/review` shows the reason]"
        );
        let network = Denial::new(DenialKind::Network, None, false);
        assert_eq!(
            network.explain(&policy, "", false),
            "[Sandbox: the network was denied (workspace-write, network off). To allow \
             it: quack sandbox set --network on]"
        );
    }

    #[test]
    fn the_command_has_the_directory_and_the_session_and_never_opens_a_place_with_keys() {
        let text = |kind, target: &str, session: &str| {
            Denial::new(kind, Some(target), false).explain(&Policy::default(), session, false)
        };
        let line = text(DenialKind::Write, "/home/me/it's/lib/x", "app/claude-code");
        let expected = "To allow it: quack sandbox set --writable '/home/me/it'\\''s/lib' --session app/claude-code]";
        assert!(line.ends_with(expected), "{line}");
        let line = text(DenialKind::Write, "/srv/a/x", "my app");
        assert!(line.ends_with("--writable /srv/a --session 'my app']"), "{line}");
        for place in [
            "/home/me/.ssh/config",
            "/home/me/.config/gh/hosts.yml",
            "/home/me/x",
            "/home/x",
            "/root/x",
            "/Users/me/x",
            "/var/home/me/x",
            "/etc/ssl/x",
            "/x",
            "relative/x",
            "/srv//x",
            "/data/users/me/.ssh",
            "/data/users/me/.aws",
            "/data/users/me\u{202e}/x",
            "/data/users/me\u{3164}/x",
        ] {
            for kind in [DenialKind::Write, DenialKind::Read] {
                let line = text(kind, place, "app");
                assert!(!line.contains("--writable"), "{line}");
                assert!(
                    line.contains("quack sandbox explain") && line.contains("--session app"),
                    "{line}"
                );
            }
        }
        let host = [refused("a.example", 443, None)];
        let line = explain_network(&host, false, &Policy::default(), "app/claude-code", false);
        assert!(
            line.ends_with("quack sandbox allow a.example --session app/claude-code]"),
            "{line}"
        );
    }

    #[test]
    fn a_command_that_changes_settings_of_git_is_told_to_the_user() {
        for (target, expected) in [
            ("/w/.git/config", true),
            ("/w/.git/modules/m/config", true),
            ("/w/bare.git/worktrees/x/config.worktree", true),
            ("/w/.git/hooks/x", false),
            ("/w/.vscode/config", false),
            ("config", false),
        ] {
            let denial = Denial::new(DenialKind::Protected, Some(target), true);
            let text = denial.explain(&Policy::default(), "", false);
            assert_eq!(text.contains("run git yourself in a terminal"), expected, "{text}");
        }
    }

    fn refused(host: &str, port: u16, why: Option<DenyReason>) -> RefusedHost {
        RefusedHost { host: host.to_owned(), port, why, ..RefusedHost::default() }
    }

    #[test]
    fn hosts_are_named_up_to_a_limit() {
        let policy = Policy::default();
        let hosts: Vec<_> = (1..=7).map(|n| refused(&format!("h{n}.example"), 0, None)).collect();
        let line = |hosts: &[RefusedHost], is_shared| {
            explain_network(hosts, is_shared, &policy, "", false)
        };
        let off = "(workspace-write, network off). To allow it:";
        assert_eq!(
            line(&[], false),
            format!("[Sandbox: the network was denied {off} quack sandbox set --network on]")
        );
        assert_eq!(
            line(&hosts[..2], true),
            format!(
                "[Sandbox: the network (h1.example, h2.example) was denied to a command of this session {off} quack \
                 sandbox allow h1.example h2.example]"
            )
        );
        assert!(line(&hosts, false).contains("h5.example and 2 more) was denied"));
        let odd = [refused("a\u{fffd}b", 0, None)];
        assert!(line(&odd, false).ends_with("quack sandbox set --network on]"));
    }

    #[test]
    fn each_reason_has_its_line_and_its_remedy() {
        let policy = Policy { hosts: Some(Vec::new()), ..Policy::default() };
        let line = |hosts: &[RefusedHost]| explain_network(hosts, false, &policy, "", false);
        let (not_listed, rule) = (Some(DenyReason::NotListed), Some(DenyReason::DenyRule));
        let end = "(workspace-write, network hosts)";
        let npm = refused("registry.example.org", 443, not_listed);
        assert_eq!(
            line(std::slice::from_ref(&npm)),
            format!(
                "[Sandbox: the network (registry.example.org) was denied {end}. To allow it: quack sandbox \
                 allow registry.example.org]"
            )
        );
        let ssh = refused("git.example.org", 22, not_listed);
        assert!(line(&[ssh]).ends_with("quack sandbox allow git.example.org:22]"));
        let address = Some("10.0.0.7".to_owned());
        let private =
            RefusedHost { address, ..refused("db.example", 443, Some(DenyReason::PrivateAddress)) };
        assert_eq!(
            line(&[private]),
            format!(
                "[Sandbox: the network (db.example:443) was denied: it leads to 10.0.0.7, an address of this machine or a \
                 local network {end}. To allow it: quack sandbox allow 10.0.0.7:443]"
            )
        );
        let denied = refused("bad.example", 443, rule);
        assert_eq!(
            line(&[npm, denied]).lines().nth(1).unwrap(),
            format!(
                "[Sandbox: the network (bad.example:443) was denied: a rule denies it {end}. To see the rule: quack \
                 sandbox explain bad.example]"
            )
        );
    }

    #[test]
    fn a_metadata_service_and_this_machine_are_never_suggested() {
        let policy = Policy { hosts: Some(Vec::new()), ..Policy::default() };
        let line = |host: RefusedHost| explain_network(&[host], false, &policy, "", false);
        let private = |address: Option<&str>| RefusedHost {
            address: address.map(str::to_owned),
            ..refused("build.example", 9000, Some(DenyReason::PrivateAddress))
        };
        let not_listed = |host| refused(host, 80, Some(DenyReason::NotListed));
        for host in [
            private(Some("169.254.169.254")),
            private(Some("127.0.0.1")),
            private(None),
            not_listed("169.254.169.254"),
            not_listed("metadata.google.internal"),
            refused("100.100.100.200", 80, None),
        ] {
            let line = line(host);
            assert!(!line.contains("quack sandbox"), "{line}");
        }
        assert!(line(private(Some("10.0.0.7"))).ends_with("quack sandbox allow 10.0.0.7:9000]"));
        let both = [not_listed("169.254.169.254"), not_listed("a.example")];
        let line = explain_network(&both, false, &policy, "", false);
        assert!(line.ends_with(". To allow it: quack sandbox allow a.example]"), "{line}");
    }

    #[test]
    fn answers_of_the_user_are_named() {
        let policy = Policy { hosts: Some(Vec::new()), ..Policy::default() };
        let line = |hosts: &[RefusedHost]| explain_network(hosts, false, &policy, "", false);
        let allowed =
            RefusedHost { approved: Some(AnswerScope::Session), ..refused("a.example", 443, None) };
        let denied = refused("b.example", 443, Some(DenyReason::DeniedByUser));
        let late =
            RefusedHost { waited_s: 30, ..refused("c.example", 443, Some(DenyReason::Timeout)) };
        assert_eq!(
            line(&[allowed, denied, late]).lines().collect::<Vec<_>>(),
            [
                "[Sandbox: the network (a.example:443) was allowed by the user for this session]",
                "[Sandbox: the network (b.example:443) was denied by the user]",
                "[Sandbox: the network (c.example:443) was denied: no answer within 30 s. To allow the next attempt: \
                 quack allow c.example:443]",
            ]
        );
    }

    #[test]
    fn a_target_is_cut_at_a_character() {
        let target = Denial::new(DenialKind::Read, Some(&"ä".repeat(200)), false).target.unwrap();
        assert_eq!(target.len(), MAX_TARGET_BYTES);
    }

    #[test]
    fn on_another_machine_no_text_proposes_a_change_that_is_refused() {
        let policy = Policy::default();
        for kind in [DenialKind::Write, DenialKind::Read] {
            let line = Denial::new(kind, Some("/srv/data/x"), false).explain(&policy, "app", true);
            assert!(line.ends_with("can write its workspace only]"), "{line}");
        }
        let host = RefusedHost { host: "a.example".to_owned(), ..RefusedHost::default() };
        let line = explain_network(&[host], false, &policy, "app", true);
        assert!(line.ends_with("quack sandbox set --network on --session app]"), "{line}");
        assert!(line.contains("(a.example)"), "{line}");
    }
}
