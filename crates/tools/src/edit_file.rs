//! edit_file: replaces one literal text in one file of the workspace.
//!
//! Works on bytes: the rest of the file does not change, including invalid UTF-8, a byte order mark and line
//! endings.

use crate::arguments::Arguments;
use crate::call_limits::{CallLimits, CancelOnDrop};
use crate::read_file::PATH;
use crate::read_tracker::ReadTracker;
use crate::write_error::{MAX_EDITED_BYTES, WriteFailure};
use crate::write_file::{MAX_ATTEMPTS, open_unprotected};
use crate::{Call, Confinement, Output, Toolbox};
use memchr::memmem;
use quackd_sandbox::{Purpose, Root, WriteError};
use std::sync::Arc;

const OLD_TEXT: &[&str] = &["old_text", "oldText", "find"];
const NEW_TEXT: &[&str] = &["new_text", "newText", "replace"];

pub(crate) async fn edit_file(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    if let Some(refused) = toolbox.refuse_change(call, "edit_file") {
        return refused;
    }
    let Some(path) = arguments.text(PATH) else {
        return Output::error("Missing required parameter 'path'");
    };
    // Whitespace can be replaced, and any text can be deleted. Only an empty text cannot be searched for.
    let first = |names: &[&str]| names.iter().find_map(|name| arguments.any_text(name));
    let non_empty = |name: &&str| arguments.any_text(name).filter(|text| !text.is_empty());
    let Some(old) = OLD_TEXT.iter().find_map(non_empty) else {
        return Output::error("Missing required parameter 'old_text'");
    };
    let Some(new) = first(NEW_TEXT) else {
        return Output::error("Missing required parameter 'new_text'");
    };
    if let Some(refused) = toolbox.confinement.refuse_read_only(path) {
        return refused;
    }
    let replacement = Replacement { old: old.to_owned(), new: new.to_owned() };
    let path = path.to_owned();
    let (seen, confinement) = (Arc::clone(&toolbox.seen), Arc::clone(&toolbox.confinement));
    // An abandoned write must not happen after the answer.
    let cancel = CancelOnDrop::default();
    let give_up = bounds.give_up(&cancel);
    let edited = bounds
        .run_blocking(move || {
            edit_blocking(&root, &seen, &confinement, &path, &replacement, &give_up)
        })
        .await;
    match edited {
        Ok(Ok(text)) => Output::success(text),
        Ok(Err(failure)) => failure.output("edit_file", bounds, &toolbox.confinement),
        Err(cutoff) => Output::cut_off("edit_file", bounds, cutoff),
    }
}

/// Old and new text.
struct Replacement {
    old: String,
    new: String,
}

fn edit_blocking(
    root: &Root,
    seen: &ReadTracker,
    confinement: &Confinement,
    path: &str,
    Replacement { old, new }: &Replacement,
    give_up: &dyn Fn() -> bool,
) -> Result<String, WriteFailure> {
    let named = |error| WriteFailure::of(error, "edit", root, path);
    let mut attempt = 1;
    loop {
        let mut target = open_unprotected(root, confinement, path, Purpose::Edit, give_up)?;
        let content = target.read(MAX_EDITED_BYTES).map_err(named)?;
        let edited = replace_once(&content, old.as_bytes(), new.as_bytes())?;
        match target.replace(&edited, give_up) {
            Err(WriteError::Changed) if attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => return Err(named(error)),
            Ok(version) => {
                seen.remember_blocking(target.relative().to_path_buf(), version);
                return Ok(format!("Successfully edited {path}"));
            }
        }
    }
}

/// Returns `content` with its only occurrence of `old` replaced. Overlapping occurrences count once.
fn replace_once(content: &[u8], old: &[u8], new: &[u8]) -> Result<Vec<u8>, WriteFailure> {
    let mut found = memmem::find_iter(content, old);
    let at = found.next().ok_or(WriteFailure::NoOccurrence)?;
    match found.count() {
        0 => {
            let (before, rest) = content.split_at(at);
            Ok([before, new, rest.get(old.len()..).unwrap_or_default()].concat())
        }
        others => Err(WriteFailure::Ambiguous(others + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(content: &[u8], old: &[u8], new: &[u8]) -> Result<Vec<u8>, String> {
        replace_once(content, old, new).map_err(|failure| failure.to_string())
    }

    #[test]
    fn one_occurrence_is_replaced_and_everything_else_stays() {
        type Case =
            (&'static [u8], &'static [u8], &'static [u8], Result<&'static [u8], &'static str>);
        let cases: &[Case] = &[
            (b"a b c", b"b", b"x", Ok(b"a x c")),
            (b"a b c", b"a b c", b"", Ok(b"")),
            (b"a  b", b"  ", b" ", Ok(b"a b")),
            (b"a b", b"b", b"$& $$ $1 \\1", Ok(b"a $& $$ $1 \\1")),
            (b"\xef\xbb\xbfa\r\n\xffb\r\n", b"a", b"c", Ok(b"\xef\xbb\xbfc\r\n\xffb\r\n")),
            (b"a\r\nb", b"a\nb", b"", Err("old_text not found in file")),
            (b"aXa", b"a", b"", Err("old_text found 2 times (ambiguous edit)")),
            (b"aaa", b"aa", b"b", Ok(b"ba")),
            (b"aaaa", b"aa", b"b", Err("old_text found 2 times (ambiguous edit)")),
            (b"", b"a", b"b", Err("old_text not found in file")),
        ];
        for (content, old, new, expected) in cases {
            let expected = expected.map(<[u8]>::to_vec).map_err(str::to_owned);
            assert_eq!(replaced(content, old, new), expected, "{content:?} {old:?}");
        }
    }
}
