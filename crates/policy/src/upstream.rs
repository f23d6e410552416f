//! The proxy of the user's network, which `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name. hyper-util reads
//! these as curl does.

use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use quackd_protocol::network::UpstreamVariables;

/// Port of a proxy whose URL has none.
const USUAL_PORT: u16 = 80;

/// The proxy of the user's network.
#[derive(Debug)]
pub struct UpstreamProxy(Matcher);

/// Variables that name no proxy that quackd can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The proxy is not an HTTP proxy.
    #[error("the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is not an http:// proxy")]
    NotHttp,
    /// The URL has a name or a password.
    #[error(
        "the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY needs a password, which quackd does not give to the processes \
         of sessions; run a local proxy that adds it"
    )]
    Password,
}

impl UpstreamProxy {
    /// Checks variables as a program has them. The result has no password. `None` if they name no proxy.
    ///
    /// # Errors
    /// A proxy that is not an HTTP proxy, or one with a password.
    pub fn check(variables: UpstreamVariables) -> Result<Option<UpstreamVariables>, UpstreamError> {
        let UpstreamVariables { all, http, https, no } = variables;
        let is_set = |value: &str| !value.trim().is_empty();
        if ![&all, &http, &https].into_iter().any(|value| is_set(value)) {
            return Ok(None);
        }

        let (has_http, has_https) = (is_set(&all) || is_set(&http), is_set(&all) || is_set(&https));
        // Without `no`, so that the test name below is not excepted.
        let matcher = Matcher::builder().all(all).http(http).https(https).build();

        let checked = |scheme: &str, is_set: bool| {
            match address(scheme, "a.example", 1).and_then(|uri| matcher.intercept(&uri)) {
                // hyper-util does not understand the value.
                None if is_set => Err(UpstreamError::NotHttp),
                None => Ok(String::new()),
                Some(proxy) if proxy.basic_auth().is_some() || proxy.raw_auth().is_some() => {
                    Err(UpstreamError::Password)
                }
                Some(proxy) if proxy.uri().scheme_str() != Some("http") => {
                    Err(UpstreamError::NotHttp)
                }
                Some(proxy) => Ok(proxy.uri().to_string()),
            }
        };
        let (http, https) = (checked("http", has_http)?, checked("https", has_https)?);
        Ok(Some(UpstreamVariables { all: String::new(), http, https, no }))
    }

    /// Reads checked variables.
    #[must_use]
    pub fn new(checked: &UpstreamVariables) -> Self {
        let UpstreamVariables { all, http, https, no } = checked.clone();
        Self(Matcher::builder().all(all).http(http).https(https).no(no).build())
    }

    /// Returns host and port of the proxy through which a name is reached. `is_http` is true for a
    /// request that the proxy gets as a whole address, false for a tunnel. `None` if the name is
    /// reached directly.
    #[must_use]
    pub fn of_name(&self, name: &str, port: u16, is_http: bool) -> Option<(String, u16)> {
        let scheme = if is_http { "http" } else { "https" };
        let proxy = self.0.intercept(&address(scheme, name, port)?)?;
        let host = proxy.uri().host()?.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), proxy.uri().port_u16().unwrap_or(USUAL_PORT)))
    }
}

fn address(scheme: &str, name: &str, port: u16) -> Option<Uri> {
    let authority = format!("{name}:{port}");
    Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables([all, http, https, no]: [&str; 4]) -> UpstreamVariables {
        let [all, http, https, no] = [all, http, https, no].map(str::to_owned);
        UpstreamVariables { all, http, https, no }
    }

    fn read(texts: [&str; 4]) -> Result<Option<UpstreamProxy>, UpstreamError> {
        let checked = UpstreamProxy::check(variables(texts))?;
        Ok(checked.as_ref().map(UpstreamProxy::new))
    }

    #[test]
    fn no_part_of_a_password_is_left() {
        let plain = "http://plain.example:1";
        let texts = ["socks5://me:hunter2@a.example", plain, plain, ""];
        let checked = UpstreamProxy::check(variables(texts)).unwrap().unwrap();
        assert!(!format!("{checked:?}").contains("hunter2"), "{checked:?}");
        let proxy = UpstreamProxy::new(&checked);
        assert_eq!(proxy.of_name("b.example", 443, false), Some(("plain.example".to_owned(), 1)));
    }

    #[test]
    fn each_kind_of_request_has_its_proxy_and_exceptions() {
        let texts = ["", "http://plain.example", "tls.example:3128", "corp.example, 10.0.0.0/8"];
        let proxy = read(texts).unwrap().unwrap();
        let plain = Some(("plain.example".to_owned(), 80));
        let tls = Some(("tls.example".to_owned(), 3128));
        assert_eq!(proxy.of_name("a.example", 80, true), plain);
        assert_eq!(proxy.of_name("a.example", 80, false), tls);
        assert_eq!(proxy.of_name("a.example", 443, false), tls);
        for name in ["corp.example", "a.corp.example"] {
            assert_eq!(proxy.of_name(name, 443, false), None);
        }
        let proxy = read(["http://[::1]:8080", "", "", ""]).unwrap().unwrap();
        assert_eq!(proxy.of_name("a.example", 22, false), Some(("::1".to_owned(), 8080)));
    }

    #[test]
    fn what_is_no_plain_http_proxy_is_an_error() {
        assert!(read(["", " ", "", "*"]).unwrap().is_none());
        let only_tls = ["", "", "http://tls.example", "*"];
        let proxy = read(only_tls).unwrap().unwrap();
        assert_eq!(proxy.of_name("a.example", 443, false), None);
        for value in ["socks5://a.example", "https://a.example", "http://[", "a b"] {
            for texts in [[value, "", "", ""], ["", value, "", ""], ["", "", value, ""]] {
                let error = read(texts).unwrap_err();
                assert_eq!(error, UpstreamError::NotHttp, "{value}");
            }
        }
        for value in ["http://me:secret@a.example", "socks5://me:secret@a.example"] {
            let error = read(["", "", value, ""]).unwrap_err();
            assert_eq!(error, UpstreamError::Password);
            assert!(!error.to_string().contains("secret"));
        }
    }
}
