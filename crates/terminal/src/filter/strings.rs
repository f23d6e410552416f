//! Operating system commands that pass: titles, links, marks of prompts, and text for the clipboard if the user allows it.

use super::options::{ClipboardRule, FilterOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::foreign_text::{is_web_address, stripped_line};
use quackd_protocol::limits::MAX_TITLE_CHARS;

/// Maximum size of a command in bytes, except a text for the clipboard.
const MAX_COMMAND: usize = 8 * 1024;

/// Maximum size of the name with which parts of a link belong together, in bytes.
const MAX_LINK_ID: usize = 64;

/// Maximum size of a text for the clipboard, in bytes.
const MAX_CLIPBOARD: usize = 64 * 1024;

/// Ends a link.
pub(super) const NO_LINK: &[u8] = b"\x1b]8;;\x1b\\";

/// A command that passes, with its bytes.
pub(super) enum Command {
    Title(Vec<u8>),
    Link(Vec<u8>),
    /// The end of a link, or a link that does not pass.
    NoLink,
    Other(Vec<u8>),
}

/// Returns what passes of a command, or `None`.
pub(super) fn allowed(parts: &[&[u8]], options: &FilterOptions) -> Option<Command> {
    if let [b"52", targets, data] = parts {
        return (options.clipboard == ClipboardRule::Write)
            .then(|| clipboard(targets, data).map(Command::Other))
            .flatten();
    }
    if MAX_COMMAND < parts.iter().map(|part| part.len() + 1).sum() {
        return None;
    }

    match parts {
        [b"0" | b"2", title @ ..] if !title.is_empty() => {
            let title = String::from_utf8_lossy(&title.join(&b';')).into_owned();
            let title = stripped_line(&title, MAX_TITLE_CHARS);
            Some(Command::Title(command(&format!("2;{}{title}", options.title_prefix))))
        }
        [b"8", keys, address @ ..] => Some(link(keys, &address.join(&b';'))),
        [b"133", kind @ (b"A" | b"B" | b"C"), ..] => Some(Command::Other(mark(kind, None))),
        [b"133", kind @ b"D", code @ ..] => {
            let code = code.first().and_then(|it| str::from_utf8(it).ok()?.parse::<u8>().ok());
            Some(Command::Other(mark(kind, code)))
        }
        _ => None,
    }
}

fn command(text: &str) -> Vec<u8> {
    format!("\x1b]{text}\x1b\\").into_bytes()
}

/// Returns the mark of a prompt, a command, its output, or its end with the exit code.
fn mark(kind: &[u8], code: Option<u8>) -> Vec<u8> {
    let code = code.map_or_else(String::new, |code| format!(";{code}"));
    command(&format!("133;{}{code}", String::from_utf8_lossy(kind)))
}

/// A link passes with an address of the web, in printable ASCII.
fn link(keys: &[u8], address: &[u8]) -> Command {
    let address = str::from_utf8(address).ok().filter(|address| is_web_address(address));
    let Some(address) = address else { return Command::NoLink };

    let is_name = |name: &&[u8]| {
        name.len() <= MAX_LINK_ID
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    let id = keys.split(|byte| *byte == b':').find_map(|key| key.strip_prefix(b"id="));
    let id = id.filter(is_name).map(|id| format!("id={}", String::from_utf8_lossy(id)));
    Command::Link(command(&format!("8;{};{address}", id.unwrap_or_default())))
}

/// Returns the command that replaces the text of the clipboard. A query is no base64.
fn clipboard(targets: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8(STANDARD.decode(data).ok()?).ok()?;
    let is_safe = text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n'));
    if MAX_CLIPBOARD < text.len() || !is_safe || !targets.iter().all(|it| b"cps".contains(it)) {
        return None;
    }
    let target = if targets == b"p" { "p" } else { "c" };
    Some(command(&format!("52;{target};{}", STANDARD.encode(text))))
}
