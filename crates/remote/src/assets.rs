//! Static files for browsers: the page. They need no token.
//!
//! `/`, `/sw.js` and `/app.webmanifest` are upstream's paths; the content is ours. All files are compiled in, so a
//! request cannot read a file of this machine.

use crate::reply::{self, HttpReply};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY};
use std::borrow::Cow;

/// Adds one file with its path on the wire.
macro_rules! file {
    ($path:literal, $file:literal) => {
        ($path, include_str!(concat!("../assets/", $file)))
    };
    ($path:literal) => {
        ($path, include_str!(concat!("..", $path)))
    };
}

/// Every file of the directory `assets`.
const FILES: &[(&str, &str)] = &[
    file!("/", "index.html"),
    file!("/index.html", "index.html"),
    file!("/sw.js", "sw.js"),
    file!("/app.webmanifest", "app.webmanifest"),
    file!("/assets/app.js"),
    file!("/assets/dom.js"),
    file!("/assets/icon.svg"),
    file!("/assets/store.js"),
    file!("/assets/style.css"),
    file!("/assets/terminal.js"),
    file!("/assets/text.js"),
    file!("/assets/views/changes.js"),
    file!("/assets/views/health.js"),
    file!("/assets/views/questions.js"),
    file!("/assets/views/session.js"),
    file!("/assets/views/sessions.js"),
    file!("/assets/wire.js"),
];

/// Allows what the page needs: its own files, and connections to this daemon. No inline code, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns true if the path is served as a file. Checked before the token.
pub(crate) fn is_asset(path: &str) -> bool {
    path == "/" || path.starts_with("/assets/") || (path.contains('.') && !path.starts_with("/ws"))
}

/// Answers a `GET` of a file.
pub(crate) fn answer(path: &str) -> HttpReply {
    let Some(path) = decoded(path) else {
        return reply::error(StatusCode::BAD_REQUEST, "Malformed request path");
    };
    let Some((path, text)) = FILES.iter().find(|(known, _)| *known == path) else {
        return reply::error(StatusCode::NOT_FOUND, "Not found");
    };

    let mut reply = reply::body(StatusCode::OK, media_type(path), served(path, text).into_owned());
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        // After an upgrade of the daemon, an old script would not fit.
        (CACHE_CONTROL, "no-cache"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// Spaces of a style sheet that browsers do not need, with what remains of them.
const SPACES: [(&str, &str); 6] =
    [(" {", "{"), ("{ ", "{"), (" }", "}"), (": ", ":"), ("; ", ";"), (", ", ",")];

/// Returns the text that browsers get: scripts and styles without what only their authors need.
fn served(path: &str, text: &'static str) -> Cow<'static, str> {
    match path.rsplit_once('.') {
        Some((_, "js")) => without_types(&without_comments(text)).into(),
        Some((_, "css")) => {
            let text = without_comments(text);
            SPACES.iter().fold(text, |text, (from, to)| text.replace(from, to)).into()
        }
        _ => text.into(),
    }
}

/// Removes the types in lines with code.
fn without_types(text: &str) -> String {
    let mut parts = text.split("/** @type {");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |code, part| code + part.split_once("*/ ").map_or(part, |(_, rest)| rest))
}

/// Removes indentation, and the comments that fill their lines. A comment in a line with code stays.
fn without_comments(text: &str) -> String {
    let mut is_inside = false;
    let is_code = |line: &&str| {
        let is_begin = !is_inside && line.starts_with("/*");
        let is_comment = is_inside || line.starts_with("//") || (is_begin && ends(line));
        is_inside = (is_inside || is_begin) && !line.contains("*/");
        !is_comment && !line.is_empty()
    };
    text.lines().map(str::trim).filter(is_code).flat_map(|line| [line, "\n"]).collect()
}

/// Returns true if a comment that begins this line has no code after it.
fn ends(line: &str) -> bool {
    line.split_once("*/").is_none_or(|(_, code)| code.is_empty())
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("html", |(_, extension)| extension) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "webmanifest" => "application/manifest+json; charset=utf-8",
        _ => "text/html; charset=utf-8",
    }
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
    use std::path::{Path, PathBuf};

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
        assert_eq!(answer("/assets/%zz").status(), 400);
        assert_eq!(answer("/assets/../../etc/passwd").status(), 404);
        assert_eq!(answer("/assets/%2e%2e/x").status(), 404);
        assert_eq!(answer("/assets/app%2ejs").status(), 200);
    }

    #[test]
    fn every_file_of_the_directory_is_served_and_together_they_are_small() {
        fn visit(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    visit(&entry.path(), found);
                } else {
                    found.push(entry.path());
                }
            }
        }
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let mut found = Vec::new();
        visit(&dir, &mut found);
        for path in &found {
            let name = path.strip_prefix(&dir).unwrap().to_str().unwrap();
            let is_served = FILES
                .iter()
                .any(|(url, _)| *url == format!("/{name}") || *url == format!("/assets/{name}"));
            assert!(is_served, "{name} is missing in FILES");
        }
        let is_code = |path: &str| media_type(path).starts_with("text/") && path != "/";
        let code = FILES.iter().filter(|(path, _)| is_code(path));
        let size: usize = code.map(|(path, text)| served(path, text).len()).sum();
        assert!(size <= 60 * 1024, "page, style and scripts have {size} bytes, more than 60 KiB");
    }

    #[test]
    fn no_file_has_code_behind_a_long_comment_or_a_text_of_several_lines() {
        for (path, text) in FILES.iter().filter(|(path, _)| *path != "/") {
            let mut is_inside = false;
            for line in text.lines().map(str::trim) {
                is_inside |= line.starts_with("/*");
                if is_inside && line.contains("*/") {
                    // Code behind the end of a long comment would not be served.
                    assert!(line.starts_with("/*") || line.ends_with("*/"), "{path}: {line}");
                    is_inside = false;
                }
                // Its indentation would not be served.
                let is_comment = line.starts_with(['/', '*']);
                assert!(is_comment || line.matches('`').count() % 2 == 0, "{path}: {line}");
            }
        }
    }

    #[test]
    fn comments_types_and_spaces_are_not_served() {
        let script = "/** One. */\n// two\n  /**\n   * Three.\n   */\nlet a = /** @type {A} */ (b); // c\n\n\
            /** @type {D} */ (d).e();\n/* f\n*/\nlet url = `http://${g}`;\n";
        let code = "let a = /** @type {A} */ (b); // c\n/** @type {D} */ (d).e();\nlet url = `http://${g}`;\n";
        assert_eq!(without_comments(script), code);
        let code = "let a = (b); // c\n(d).e();\nlet url = `http://${g}`;\n";
        assert_eq!(served("/a.js", script), code);
        let style = "/* a */\n.b > c, d {\n\te: f, g; h: i;\n}\n";
        assert_eq!(served("/a.css", style), ".b > c,d{\ne:f,g;h:i;\n}\n");
    }
}
