//! Validators of texts, one per kind of key. The table of keys refers to them. Each error is a verb phrase that states
//! the requirement and the actual value.

use crate::SSH_AGENT_AUTO;
use crate::error::excerpt;
use quackd_policy::{MAX_ROOTS, path_problem};
use quackd_protocol::approval::ApprovalKind;
use quackd_protocol::limits::MAX_HOST_RULES;
use quackd_protocol::model::ThinkingLevel;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Maximum length of the text of a value, in bytes. Paths have at most 4,096.
const MAX_TEXT_BYTES: usize = 4096;

/// Names of the `tracing` levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks the rule for every text: no control characters, so that it fits on one line, and no NUL, which a program's
/// argument cannot contain.
pub(crate) fn plain(text: &str) -> Result<(), String> {
    if text.contains(char::is_control) {
        return Err(format!("must be without control characters, not `{}`", excerpt(text)));
    }
    if MAX_TEXT_BYTES < text.len() {
        return Err(format!("must have at most {MAX_TEXT_BYTES} bytes, not {}", text.len()));
    }
    Ok(())
}

/// Checks a level, or levels per target: `info`, `warn,quackd_supervisor=debug`.
pub(crate) fn log_filter(text: &str) -> Result<(), String> {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let is_target = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c))
    };

    let is_directive = |directive: &str| match directive.split_once('=') {
        Some((target, level)) => is_target(target) && is_level(level),
        None => is_level(directive),
    };

    if text.split(',').all(is_directive) {
        return Ok(());
    }

    let levels = LEVELS.join(", ");
    Err(format!("must be one of {levels}, or such as `info,target=debug`, not `{}`", excerpt(text)))
}

/// Checks an address that receives a key. It must be encrypted, unless it is on this machine.
pub(crate) fn endpoint(text: &str) -> Result<(), String> {
    let is_url = text.bytes().all(|b| b.is_ascii_graphic());
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let host = host(rest.split(['/', '?', '#']).next().unwrap_or_default());
    let host = host.filter(|_| is_url);

    // The rest of the text may contain a secret, so the error repeats only the host.
    match (scheme, host) {
        ("https", Some(_)) => Ok(()),
        ("http", Some(host)) if is_this_machine(host) => Ok(()),
        ("http", Some(host)) => {
            Err(format!("must be https:// for {}, since a key is sent there", excerpt(host)))
        }
        _ if rest.contains('@') => Err("must be without user name and password".to_owned()),
        _ => Err("must be an address such as https://host:port/path".to_owned()),
    }
}

/// Checks the base URL of a model provider, or an empty text. The text may contain a secret, so no error repeats it.
pub(crate) fn base_url(text: &str) -> Result<(), String> {
    let is_url = text.bytes().all(|b| b.is_ascii_graphic());
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match (scheme, host(authority)) {
        _ if text.is_empty() => Ok(()),
        ("https" | "http", Some(_)) if is_url => Ok(()),
        _ if authority.contains('@') => Err("must be without user name and password".to_owned()),
        _ => Err("must be an address such as https://host:port/v1".to_owned()),
    }
}

/// Checks a thinking level, or an empty text.
pub(crate) fn thinking(text: &str) -> Result<(), String> {
    if text.is_empty() || ThinkingLevel::named(text).is_some() {
        return Ok(());
    }

    let known = ThinkingLevel::ALL.map(ThinkingLevel::name).join(", ");
    Err(format!("must be one of {known}, not `{}`", excerpt(text)))
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Checks an address with a port that only programs on this machine can reach, or an empty text.
pub(crate) fn loopback(text: &str) -> Result<(), String> {
    const SUCH_AS: &str = "such as 127.0.0.1:9464 or [::1]:9464";
    match text.parse::<SocketAddr>() {
        _ if text.is_empty() => Ok(()),
        Ok(address) if address.ip().is_loopback() => Ok(()),
        Ok(_) => Err(format!(
            "must be an address of this machine only, {SUCH_AS}, not `{}`: the endpoint has no \
             authentication, so use a proxy with authentication for other machines",
            excerpt(text)
        )),
        Err(_) => Err(format!(
            "must be an address and a port, {SUCH_AS}, or empty for none, not `{}`",
            excerpt(text)
        )),
    }
}

/// Checks the address of links: one that only programs on this machine can reach, or `off`.
pub(crate) fn links(text: &str) -> Result<(), String> {
    let is_here = |address: SocketAddr| address.ip().is_loopback();
    if text == "off" || text.parse().is_ok_and(is_here) {
        return Ok(());
    }
    Err(format!(
        "must be an address of this machine only and a port, such as 127.0.0.1:43112 or [::1]:43112, or `off`, not `{}`",
        excerpt(text)
    ))
}

/// Returns the host of `host[:port]`. Accepts no other form, so that no other parser can find a different host in the
/// same text.
fn host(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        // Both brackets are a part of the host.
        Some(inner) => inner.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };

    let (host, port) = authority.split_at_checked(end)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let is_address = |c: char| c.is_ascii_hexdigit() || ".:[]".contains(c);
    let is_host = if host.starts_with('[') {
        host.chars().all(is_address)
    } else {
        !host.is_empty() && host.chars().all(is_name)
    };

    let is_port = port.is_empty() || port.strip_prefix(':')?.parse::<u16>().is_ok();
    (is_host && is_port).then_some(host)
}

/// Accepts any text: another program validates it.
#[expect(clippy::unnecessary_wraps, reason = "checks have this shape")]
pub(crate) fn anything(_: &str) -> Result<(), String> {
    Ok(())
}

/// Checks the socket of an ssh agent.
pub(crate) fn ssh_agent(text: &str) -> Result<(), String> {
    if text.is_empty() || text == SSH_AGENT_AUTO || Path::new(text).is_absolute() {
        return Ok(());
    }
    Err(format!("must be auto, empty or an absolute path, not `{}`", excerpt(text)))
}

/// Checks the file of the program for other machines.
pub(crate) fn far_program(text: &str) -> Result<(), String> {
    if text.is_empty() || Path::new(text).is_absolute() {
        return Ok(());
    }
    Err(format!("must be empty or an absolute path, not `{}`", excerpt(text)))
}

/// Checks a path in a sandbox policy.
pub(crate) fn policy_path(index: usize, path: &str) -> Result<(), String> {
    if MAX_ROOTS <= index {
        return Err(format!("must have at most {MAX_ROOTS} paths"));
    }
    match path_problem(Path::new(path)) {
        Some(problem) => Err(format!("must name usable paths, but `{}` {problem}", excerpt(path))),
        None => Ok(()),
    }
}

/// Checks a rule for hosts. `index` is its place in the list, for the error.
pub(crate) fn host_rule(index: usize, rule: &str) -> Result<(), String> {
    if MAX_HOST_RULES <= index {
        return Err(format!("must have at most {MAX_HOST_RULES} rules"));
    }
    quackd_policy::validate_hosts(&[rule.to_owned()])
        .map_err(|error| format!("must have usable rules, but {error}"))
}

/// Checks the name of a kind of operation.
pub(crate) fn approval_kind(_: usize, name: &str) -> Result<(), String> {
    let names = ApprovalKind::ALL.map(ApprovalKind::name);
    if names.contains(&name) {
        return Ok(());
    }
    Err(format!("must have only {}, not `{}`", names.join(", "), excerpt(name)))
}

/// Checks one word of an argument list. The first word is the program.
pub(crate) fn argument(index: usize, word: &str) -> Result<(), String> {
    if index == 0 && word.trim().is_empty() {
        return Err("must begin with a program".to_owned());
    }
    Ok(())
}

/// Checks the syntax of an environment variable's name. Any name is permitted, because the user wrote it.
pub(crate) fn variable_name(_index: usize, word: &str) -> Result<(), String> {
    let is_name = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !word.starts_with(|c: char| c.is_ascii_digit());
    if is_name && !word.is_empty() {
        return Ok(());
    }
    Err(format!("must hold names of variables, such as \"JAVA_OPTS\", not `{}`", excerpt(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_filter_is_a_level_or_levels_of_parts() {
        for good in ["info", "DEBUG", "off", "warn,quackd_supervisor=debug", "a::b-c=trace,error"] {
            assert_eq!(log_filter(good), Ok(()), "{good}");
        }
        for bad in
            ["", "loud", "info,", "info, debug", "quackd_supervisor", "=info", "a=", "[s]=info"]
        {
            let message = log_filter(bad).unwrap_err();
            assert!(message.starts_with("must be one of off, error,"), "{bad}: {message}");
        }
    }

    #[test]
    fn a_key_travels_encrypted_or_stays_on_this_machine() {
        for good in [
            "https://api.exa.ai/search",
            "https://proxy.example:8443",
            "https://[2001:db8::1]:443/x?y#z",
            "http://localhost:9",
            "http://127.0.0.1:8080/search",
            "http://127.9.9.9",
            "http://LOCALHOST/",
            "http://[::1]/search",
        ] {
            assert_eq!(endpoint(good), Ok(()), "{good}");
        }
        for (bad, part) in [
            ("http://api.exa.ai/?key=secret", "must be https:// for api.exa.ai, since"),
            ("http://0.0.0.0/", "must be https://"),
            ("http://localhost.example/", "must be https://"),
            ("http://127.0.0.1.example/", "must be https://"),
            ("https://me:secret@host/", "without user name"),
            ("http://localhost:80@evil.example/", "without user name"),
            ("http://localhost\\@evil.example/", "without user name"),
            ("http://localhost\\.evil.example/", "an address"),
            ("http://[::1].evil.example/", "an address"),
            ("http://[::1/", "an address"),
            ("https://host:99999/", "an address"),
            ("https://host:port/", "an address"),
            ("https://ho st/", "an address"),
            ("https://höst/", "an address"),
            ("https:///search", "an address"),
            ("ftp://host/?key=secret", "an address"),
            ("host", "an address"),
            ("", "an address"),
        ] {
            let message = endpoint(bad).unwrap_err();
            assert!(message.contains(part) && !message.contains("secret"), "{bad}: {message}");
        }
    }

    #[test]
    fn numbers_are_given_on_this_machine_only_and_a_name_is_no_address() {
        for good in ["", "127.0.0.1:9464", "127.9.9.9:1", "[::1]:9464", "127.0.0.1:0"] {
            assert_eq!(loopback(good), Ok(()), "{good}");
        }
        for bad in ["0.0.0.0:9464", "[::]:9464", "192.168.1.2:80", "[::ffff:127.0.0.1]:80"] {
            let message = loopback(bad).unwrap_err();
            assert!(
                message.starts_with("must be an address of this machine only, such as"),
                "{bad}"
            );
            assert!(message.contains(bad) && message.contains("a proxy"), "{message}");
        }
        for bad in [
            " ",
            "9464",
            ":9464",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:65536",
            "localhost:9464",
            "::1:9464",
            "http://127.0.0.1:9464",
            "127.0.0.1:9464/metrics",
            "127.1:9464",
            "2130706433:9464",
        ] {
            let message = loopback(bad).unwrap_err();
            assert!(message.starts_with("must be an address and a port, such as 127."), "{bad}");
        }
    }

    #[test]
    fn links_are_for_this_machine_only_or_off() {
        for good in ["off", "127.0.0.1:43112", "[::1]:0"] {
            assert_eq!(links(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "on",
            "Off",
            "0.0.0.0:43112",
            "[::]:1",
            "192.168.1.2:80",
            "localhost:1",
            "127.0.0.1",
        ] {
            let message = links(bad).unwrap_err();
            assert!(message.contains(&format!("or `off`, not `{bad}`")), "{message}");
        }
    }

    #[test]
    fn names_of_variables_are_names_and_secret_looking_ones_too() {
        for good in ["A", "_x9", "OPENAI_API_KEY"] {
            assert_eq!(variable_name(0, good), Ok(()), "{good}");
        }
        for bad in ["", "9A", "A=B", "A B", "Ä", "A-B"] {
            assert!(variable_name(3, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_of_arguments_begins_with_a_program_and_may_have_empty_ones_after_it() {
        assert_eq!((argument(0, "ssh"), argument(1, "")), (Ok(()), Ok(())));
        assert!(argument(0, " ").is_err());
    }

    #[test]
    fn texts_are_one_line_and_bounded() {
        assert_eq!(plain("host:/päth"), Ok(()));
        for bad in ["a\nb", "a\0", "\u{7f}", "\u{9b}x", &"x".repeat(MAX_TEXT_BYTES + 1)] {
            assert!(plain(bad).is_err(), "{bad:.9}");
        }
    }
}
