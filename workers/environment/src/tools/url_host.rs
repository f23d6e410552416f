//! The host of a URL as a rule. Used by the questions.

use url::{Host, Url};

/// Returns the host of an `http` or `https` URL, with its port if it is not the default. Names no credentials, path or
/// query. `None` for every other text. The forms `sparse+https:` and `registry+https:` of cargo are accepted.
pub(super) fn rule_of(url: &str) -> Option<String> {
    let url = url.trim();
    let url = url.split_once('+').filter(|(kind, _)| !kind.contains(':')).map_or(url, |(_, u)| u);
    let url = Url::parse(url).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }

    let host = match url.host()? {
        Host::Domain(name) => name.trim_end_matches('.').to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => format!("[{address}]"),
    };

    // A rule without ports has those of both schemes.
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_all_that_is_kept() {
        for (url, expected) in [
            ("https://a.test.example/simple/", Some("a.test.example")),
            ("https://me:secret@a.test.example:443/x?token=y#z", Some("a.test.example")),
            ("http://a.test.example:8081", Some("a.test.example:8081")),
            ("sparse+https://A.Test.example./index/", Some("a.test.example")),
            ("http://10.0.0.7:8081/", Some("10.0.0.7:8081")),
            ("https://[2001:db8::1]:8443/", Some("[2001:db8::1]:8443")),
            ("http://0x7f.1/", Some("127.0.0.1")),
            ("https://a.test.example/{crate}/{version}", Some("a.test.example")),
            ("git+ssh://git@a.test.example/x", None),
            ("ssh://git@a.test.example/x", None),
            ("file:///etc", None),
            ("javascript:alert(1)", None),
            ("a.test.example", None),
            ("https://", None),
            ("https://a b/", None),
            ("", None),
        ] {
            assert_eq!(rule_of(url).as_deref(), expected, "{url}");
        }
    }
}
