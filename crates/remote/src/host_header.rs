//! Validates the `Host` header and builds the URLs that are sent to clients.

use hyper::HeaderMap;
use hyper::header::HOST;
use hyper::http::uri::Authority;
use std::net::IpAddr;

/// Maximum length of the header, in bytes: a DNS name and a port.
const MAX_HOST_BYTES: usize = 262;

/// Host that the client dialed, from its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DialedHost {
    /// Host and optional port. Safe in a URL, a header or an HTML page.
    pub(crate) authority: String,
    /// True if a proxy reports that the client uses TLS.
    is_https: bool,
}

/// The header is not exactly one valid host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedHost;

impl DialedHost {
    /// Parses the headers. `Ok(None)` without `Host`, which HTTP/1.0 allows.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Option<Self>, MalformedHost> {
        let mut values = headers.get_all(HOST).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(MalformedHost);
        }

        let authority = value.to_str().ok().and_then(checked).ok_or(MalformedHost)?;
        // It only affects the reply to this client, so it may be forged.
        let is_https = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        Ok(Some(Self { authority, is_https }))
    }

    /// Returns true if the client dialed a loopback address or `localhost`, with `port` or without a port. No
    /// other machine can have these names.
    pub(crate) fn is_this_machine(&self, port: u16) -> bool {
        let host = self.host();
        let rest = self.authority.strip_prefix(host).unwrap_or_default();
        let named = rest.strip_prefix(':').map(str::parse);
        is_loopback(host) && named.is_none_or(|named| named == Ok(port))
    }

    /// Returns true if the client dialed an IP address or `localhost`, which no other site can have as its name.
    pub(crate) fn is_address(&self) -> bool {
        let host = self.host();
        address(host).is_some() || host.eq_ignore_ascii_case("localhost")
    }

    /// Returns true if the client dialed this host name, with any port.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.host().eq_ignore_ascii_case(name)
    }

    fn host(&self) -> &str {
        match self.authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.authority,
        }
    }
}

fn checked(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    if text.is_empty() || MAX_HOST_BYTES < text.len() || !text.chars().all(is_plain) {
        return None;
    }

    let authority: Authority = text.parse().ok()?;
    let host = authority.host();

    // The host may be followed by a colon and a port number only.
    let port = text.strip_prefix(host)?;
    let has_good_port = match port.strip_prefix(':') {
        None => port.is_empty(),
        Some(port) => port.parse::<u16>().is_ok(),
    };

    // Brackets contain an IPv6 address. Other hosts contain no brackets or colons.
    let has_good_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    };
    (has_good_port && has_good_host).then(|| text.to_owned())
}

/// URLs at which a client can reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Urls {
    pub(crate) http: String,
    pub(crate) ws: String,
}

impl Urls {
    /// Uses the configured host if the client can dial it. Otherwise uses the host that the client dialed.
    /// "All addresses" cannot be dialed, nor can a loopback address by a client behind a proxy.
    pub(crate) fn of(host: &str, port: u16, has_tls: bool, seen: Option<&DialedHost>) -> Self {
        let useful = seen.filter(|seen| {
            is_unspecified(host) || (is_loopback(host) && !is_loopback(seen.host()))
        });
        match useful {
            Some(seen) => Self::at(&seen.authority, has_tls || seen.is_https),
            None => Self::at(&authority(host, port), has_tls),
        }
    }

    /// Uses the host that the client dialed.
    pub(crate) fn as_seen(seen: &DialedHost, has_tls: bool) -> Self {
        Self::at(&seen.authority, has_tls || seen.is_https)
    }

    fn at(authority: &str, has_tls: bool) -> Self {
        let s = if has_tls { "s" } else { "" };
        Self { http: format!("http{s}://{authority}"), ws: format!("ws{s}://{authority}/ws") }
    }
}

/// Joins host and port. Adds brackets to an IPv6 address.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn is_unspecified(host: &str) -> bool {
    address(host).is_some_and(|address| address.is_unspecified())
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || address(host).is_some_and(|at| at.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn seen(host: &str) -> Result<Option<DialedHost>, MalformedHost> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_bytes(host.as_bytes()).unwrap());
        DialedHost::read(&headers)
    }

    #[test]
    fn only_one_plain_host_is_a_host() {
        for good in
            ["a", "a.example", "a:1", "127.0.0.1:43111", "[::1]", "[::1]:80", "my_mac.local:65535"]
        {
            assert_eq!(seen(good).unwrap().unwrap().authority, good);
        }
        for bad in [
            "",
            " ",
            ":",
            ":80",
            "a:",
            "a:b",
            "a:65536",
            "a:-1",
            "a:1:2",
            "[",
            "]",
            "[]",
            "[a]",
            "[::1",
            "::1]",
            "::1",
            "a b",
            "a/b",
            "user@a",
            "a%20b",
            "a\"",
            "<script>",
            "a,b",
            "a?b",
            "a#b",
            "ä",
            "[::1]x",
            &"a".repeat(263),
        ] {
            assert_eq!(seen(bad), Err(MalformedHost), "{bad:?}");
        }
        let mut two = HeaderMap::new();
        two.append(HOST, HeaderValue::from_static("a"));
        two.append(HOST, HeaderValue::from_static("a"));
        assert_eq!(DialedHost::read(&two), Err(MalformedHost));
        assert_eq!(DialedHost::read(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn this_machine_has_few_names_and_one_port() {
        let names = |host: &str| seen(host).unwrap().unwrap().is_this_machine(9464);
        for ours in [
            "localhost",
            "LocalHost:9464",
            "127.0.0.1",
            "127.0.0.1:9464",
            "127.9.9.9:9464",
            "[::1]",
            "[::1]:9464",
        ] {
            assert!(names(ours), "{ours}");
        }
        for other in [
            "evil.example:9464",
            "localhost.evil.example",
            "a.localhost",
            "localhost.",
            "127.0.0.1.evil.example:9464",
            "127.0.0.1:9465",
            "127.1:9464",
            "0.0.0.0:9464",
            "[::]:9464",
            "[::ffff:10.0.0.1]:9464",
            "192.168.1.2:9464",
            "9464",
        ] {
            assert!(!names(other), "{other}");
        }
    }

    #[track_caller]
    fn check(host: &str, has_tls: bool, named: Option<(&str, bool)>, expected: &str) {
        let seen =
            named.map(|(authority, is_https)| DialedHost { authority: authority.into(), is_https });
        assert_eq!(Urls::of(host, 7, has_tls, seen.as_ref()).http, expected);
    }

    #[test]
    fn the_url_is_one_that_this_client_can_dial() {
        check("0.0.0.0", false, None, "http://0.0.0.0:7");
        check("0.0.0.0", false, Some(("mac.local:7", false)), "http://mac.local:7");
        check("::", true, Some(("[fd00::1]:7", false)), "https://[fd00::1]:7");
        check("127.0.0.1", false, Some(("localhost:7", false)), "http://127.0.0.1:7");
        check("127.0.0.1", false, Some(("127.0.0.1:7", true)), "http://127.0.0.1:7");
        check("127.0.0.1", false, Some(("mac.tail.ts.net", true)), "https://mac.tail.ts.net");
        check("192.168.1.2", false, Some(("elsewhere", true)), "http://192.168.1.2:7");
        check("::1", false, None, "http://[::1]:7");
        let seen = DialedHost { authority: "a:1".into(), is_https: false };
        assert_eq!(Urls::as_seen(&seen, true).ws, "wss://a:1/ws");
    }
}
