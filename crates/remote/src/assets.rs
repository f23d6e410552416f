//! Static files for browsers: an information page. They need no token.
//!
//! Paths, types and headers are upstream's; the content is ours. All files are compiled in, so a request
//! cannot read a file of this machine.

use crate::host_header::Urls;
use crate::reply::{self, HttpReply};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde_json::json;

const PAGE: &str = include_str!("../assets/index.html");
const SCRIPT: &str = include_str!("../assets/app.js");
const STYLE: &str = include_str!("../assets/style.css");
const ICON: &str = include_str!("../assets/icon.svg");
const WORKER: &str = include_str!("../assets/sw.js");
const MANIFEST: &str = include_str!("../assets/app.webmanifest");

/// Returns true if the path is served as a file. Checked before the token.
pub(crate) fn is_asset(path: &str) -> bool {
    path == "/" || path.starts_with("/assets/") || (path.contains('.') && !path.starts_with("/ws"))
}

/// Answers a `GET` of a file. The urls become a part of the page.
pub(crate) fn answer(path: &str, urls: &Urls) -> HttpReply {
    let Some(path) = decoded(path) else {
        return reply::error(StatusCode::BAD_REQUEST, "Malformed request path");
    };

    let (kind, text) = match path.as_str() {
        "/" | "/index.html" => {
            let page = PAGE.replacen("</body>", &format!("{}</body>", config_script(urls)), 1);
            return cached(reply::body(StatusCode::OK, "text/html; charset=utf-8", page), true);
        }
        "/assets/app.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/assets/style.css" => ("text/css; charset=utf-8", STYLE),
        "/assets/icon.svg" => ("image/svg+xml", ICON),
        "/sw.js" => ("text/javascript; charset=utf-8", WORKER),
        "/app.webmanifest" => ("application/manifest+json; charset=utf-8", MANIFEST),
        _ => return reply::error(StatusCode::NOT_FOUND, "Not found"),
    };
    cached(reply::body(StatusCode::OK, kind, text), path != "/sw.js")
}

fn cached(mut reply: HttpReply, may_be_kept: bool) -> HttpReply {
    let value = if may_be_kept { "public, max-age=300" } else { "no-cache" };
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(value));
    reply
}

/// Returns a script with the daemon's URLs for the page. The host comes from the client. `DialedHost` has checked
/// that it has no special meaning in HTML, and `<` is escaped in addition.
fn config_script(urls: &Urls) -> String {
    let config = json!({"daemon": {"httpUrl": urls.http}, "sideband": {"url": urls.ws}});
    let json = config.to_string().replace('<', "\\u003c");
    format!("<script>globalThis.__RUBBER_DUCK_REMOTE_CONFIG__ = {json};</script>")
}

/// Decodes the percent escapes of a path; `None` if an escape is malformed or the result is not UTF-8.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes().iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = [*rest.next()?, *rest.next()?];
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_file_is_decided_as_upstream_does() {
        for path in ["/", "/assets/", "/assets/x", "/a.b", "/deep/er.txt", "/status.json", "/%2e."]
        {
            assert!(is_asset(path), "{path}");
        }
        for path in ["/status", "/rpc", "/ws", "/ws.js", "/wsx.y", "/assets", "/history"] {
            assert!(!is_asset(path), "{path}");
        }
    }

    #[test]
    fn escapes_are_read_and_bad_ones_refused() {
        assert_eq!(decoded("/a%20b%2F%c3%a4").as_deref(), Some("/a b/ä"));
        for bad in ["/%", "/%a", "/%zz", "/%+1", "/%ff", "/%c3"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
        let urls = Urls { http: "http://a".into(), ws: "ws://a/ws".into() };
        assert_eq!(answer("/assets/%zz", &urls).status(), 400);
        assert_eq!(answer("/assets/../../etc/passwd", &urls).status(), 404);
        assert_eq!(answer("/assets/%2e%2e/x", &urls).status(), 404);
        assert_eq!(answer("/assets/app%2ejs", &urls).status(), 200);
    }

    #[test]
    fn the_page_is_told_where_the_daemon_is() {
        let urls = Urls { http: "http://a:1".into(), ws: "ws://a:1/ws".into() };
        assert_eq!(
            config_script(&urls),
            "<script>globalThis.__RUBBER_DUCK_REMOTE_CONFIG__ = {\"daemon\":{\"httpUrl\":\"http://a:1\"},\
             \"sideband\":{\"url\":\"ws://a:1/ws\"}};</script>"
        );
        assert!(PAGE.contains("</body>"));
    }
}
