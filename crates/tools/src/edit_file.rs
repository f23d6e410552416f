//! edit_file: replaces one or more literal texts in one file of the workspace.
//!
//! Works on bytes: the rest of the file does not change, including invalid UTF-8, a byte order mark and line
//! endings. LF in the texts stands for the line end of each line, unless `any_line_ending` is false.

use crate::arguments::Arguments;
use crate::call_limits::{CallLimits, CancelOnDrop};
use crate::edit_diff;
use crate::edit_once::{EditedOnce, Leniency, replace_once};
use crate::output::Data;
use crate::read_tracker::ReadTracker;
use crate::recorded_write::{ChangeRecorder, RecordedWrite};
use crate::similar_text::Form;
use crate::write_error::{MAX_EDITED_BYTES, WriteFailure};
use crate::write_file::{MAX_ATTEMPTS, open_unprotected};
use crate::{Call, Confinement, Output, Toolbox};
use quackd_protocol::tools::{EditArguments, EditFileArguments, MayBeEmpty, NotEmpty};
use quackd_sandbox::{Purpose, Root, WriteError};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Edits of one call.
const MAX_EDITS: usize = 100;

pub(crate) async fn edit_file(
    toolbox: &Toolbox,
    call: &Call,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    if let Some(refused) = toolbox.refuse_change(call, "edit_file") {
        return refused;
    }

    let request = EditFileArguments::of(arguments.object());
    let Some(path) = arguments.directory().path_of(request.path) else {
        return Output::error("Missing required parameter 'path'");
    };

    let single = EditArguments { old_text: request.old_text, new_text: request.new_text };
    let replacements = match replacements(request.edits.as_ref(), single) {
        Ok(replacements) => replacements,
        Err(error) => return Output::error(error),
    };

    if let Some(refused) = toolbox.confinement.refuse_read_only(&path) {
        return refused;
    }

    let named = path.clone();
    let any_line_ending = request.any_line_ending.is_none_or(|given| given == true);
    let leniency = Leniency { any_line_ending, similar: request.similar };
    let has_diff = request.diff;
    let (seen, confinement) = (Arc::clone(&toolbox.state.seen), Arc::clone(&toolbox.confinement));
    let recorder = ChangeRecorder::new(toolbox, call);

    // An abandoned write must not happen after the answer.
    let cancel = CancelOnDrop::default();
    let give_up = bounds.give_up(&cancel);

    let edit = move |root: Arc<Root>| {
        let editor = Editor { root: &root, seen: &seen, confinement: &confinement, recorder };
        let edits = Edits { replacements: &replacements, leniency, has_diff };
        editor.edit_blocking(&path, edits, &give_up)
    };

    match toolbox.in_root("edit_file", bounds, edit).await {
        Ok(Ok(Edited { text, change, advice })) => {
            let data = change.map(|change| Data::of(&change));
            Output { data, ..Output::success(text).with_advice(advice).wrote([named]) }
        }
        Ok(Err(failure)) => failure.output("edit_file", bounds, &toolbox.confinement),
        Err(answer) => answer,
    }
}

/// Old and new text.
#[derive(Debug, PartialEq, Eq)]
struct Replacement {
    old: String,
    new: String,
}

/// Reason for rejecting the arguments.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum BadEdit {
    #[error("Missing required parameter '{0}'")]
    Missing(&'static str),
    #[error(
        "Parameter 'edits' must be a list of objects with new_text and an old_text that is not empty"
    )]
    NotEdits,
    #[error("Parameter 'edits' has {0} edits, {MAX_EDITS} are allowed")]
    TooMany(usize),
    #[error("Give either old_text and new_text, or edits")]
    Both,
}

/// Returns the replacements in the order in which they are made: `edits`, or the single one without them.
fn replacements(edits: Option<&Value>, single: EditArguments) -> Result<Vec<Replacement>, BadEdit> {
    let edits = match edits {
        None => return one_replacement(single).map(|replacement| vec![replacement]),
        Some(Value::Array(edits)) if !edits.is_empty() => edits,
        Some(_) => return Err(BadEdit::NotEdits),
    };

    // Another text would be ignored in silence.
    if single.old_text.0.is_some() {
        return Err(BadEdit::Both);
    }

    if MAX_EDITS < edits.len() {
        return Err(BadEdit::TooMany(edits.len()));
    }

    let of = |edit: &Value| one_replacement(EditArguments::of(edit.as_object()?)).ok();
    edits.iter().map(of).collect::<Option<_>>().ok_or(BadEdit::NotEdits)
}

fn one_replacement(edit: EditArguments) -> Result<Replacement, BadEdit> {
    // Whitespace can be replaced, and any text can be deleted. Only an empty text cannot be searched for.
    let EditArguments { old_text: NotEmpty(old), new_text: MayBeEmpty(new) } = edit;
    let old = old.ok_or(BadEdit::Missing("old_text"))?;
    Ok(Replacement { old, new: new.ok_or(BadEdit::Missing("new_text"))? })
}

/// Session state for an edit.
struct Editor<'a> {
    root: &'a Root,
    seen: &'a ReadTracker,
    confinement: &'a Confinement,
    recorder: ChangeRecorder,
}

/// The edits of a call.
#[derive(Clone, Copy)]
struct Edits<'a> {
    replacements: &'a [Replacement],
    leniency: Leniency,
    /// Whether the answer has a diff.
    has_diff: bool,
}

/// Parts of the answer.
struct Edited {
    text: String,
    /// Description of the change, if requested.
    change: Option<Map<String, Value>>,
    advice: Option<String>,
}

impl Editor<'_> {
    fn edit_blocking(
        &self,
        path: &str,
        Edits { replacements, leniency, has_diff }: Edits<'_>,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Edited, WriteFailure> {
        let Self { root, seen, confinement, recorder } = self;
        let named = |error| WriteFailure::of(error, "edit", root, path, confinement);
        let mut attempt = 1;
        loop {
            let mut target = open_unprotected(root, confinement, path, Purpose::Edit, give_up)?;
            let content = target.read(MAX_EDITED_BYTES).map_err(named)?;
            let (edited, notes) = replace_all(content.clone(), replacements, leniency)?;
            match recorder.replace_blocking(&mut target, Some(&content), &edited, give_up) {
                // Another program changed the file since it was read, so the edit is made again in the new content.
                Err(WriteError::Changed) if attempt < MAX_ATTEMPTS => attempt += 1,
                Err(error) => return Err(named(error)),
                Ok(RecordedWrite { version, advice }) => {
                    seen.remember_blocking(target.relative().to_path_buf(), version);

                    let edits = match replacements.len() {
                        1 => String::new(),
                        edits => format!(": {edits} edits"),
                    };
                    let text = format!("Successfully edited {path}{edits}{notes}");
                    let change = has_diff.then(|| edit_diff::describe(path, &content, &edited));
                    return Ok(Edited { text, change, advice });
                }
            }
        }
    }
}

/// Makes all replacements, each in the result of the one before. Also returns notes about texts that were only similar.
fn replace_all(
    mut content: Vec<u8>,
    replacements: &[Replacement],
    leniency: Leniency,
) -> Result<(Vec<u8>, String), WriteFailure> {
    let mut notes = String::new();
    for (number, Replacement { old, new }) in replacements.iter().enumerate() {
        content = match replace_once(&content, old, new, leniency) {
            Ok(EditedOnce { content, similar })
                if u64::try_from(content.len()).is_ok_and(|len| len <= MAX_EDITED_BYTES) =>
            {
                if let Some((line, forms)) = similar {
                    notes.push_str(&note(line, &forms));
                }
                content
            }
            Ok(EditedOnce { content, .. }) => {
                return Err(WriteFailure::TooLarge(content.len().try_into().unwrap_or(u64::MAX)));
            }
            // A single edit needs no number.
            Err(failure) if replacements.len() == 1 => return Err(failure),
            Err(failure) => {
                return Err(WriteFailure::InEdit {
                    number: number + 1,
                    failure: Box::new(failure),
                });
            }
        };
    }

    Ok((content, notes))
}

/// The line about a text that differs from the one in the file.
fn note(line: usize, forms: &[Form]) -> String {
    let quotes = forms.contains(&Form::Typographic).then_some("other quotes, dashes or spaces");
    let blanks = forms.contains(&Form::TrailingBlanks).then_some("other blanks at line ends");
    let differ: Vec<&str> = quotes.into_iter().chain(blanks).collect();
    format!(
        "\n[Note: from line {line} the file has {} than old_text; they stay where the text did not change]",
        differ.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LITERAL: Leniency = Leniency { any_line_ending: false, similar: false };

    fn replaced(content: &[u8], old: &str, new: &str) -> Result<Vec<u8>, String> {
        let edited = replace_once(content, old, new, LITERAL);
        edited.map(|edited| edited.content).map_err(|failure| failure.to_string())
    }

    fn read(json: &str) -> Result<Vec<Replacement>, BadEdit> {
        let arguments = Arguments::parse("edit_file", json).unwrap();
        let asked = EditFileArguments::of(arguments.object());
        let single = EditArguments { old_text: asked.old_text, new_text: asked.new_text };
        replacements(asked.edits.as_ref(), single)
    }

    fn of(json: &str) -> Result<Vec<(String, String)>, String> {
        let replacements = read(json).map_err(|error| error.to_string())?;
        Ok(replacements.into_iter().map(|Replacement { old, new }| (old, new)).collect())
    }

    #[test]
    fn edits_are_made_in_their_order_and_all_or_none() {
        let edits = |json: &str| read(json).unwrap();
        let two = r#"{"edits":[{"old_text":"a","new_text":"b"},{"oldText":"bb","newText":"c"}]}"#;
        assert_eq!(replace_all(b"xab".to_vec(), &edits(two), LITERAL).unwrap().0, b"xc");
        let failure = replace_all(b"xa".to_vec(), &edits(two), LITERAL).unwrap_err().to_string();
        assert_eq!(failure, "edit 2 of the call: old_text not found in file; nothing was changed");
        let large = vec![b'x'; usize::try_from(MAX_EDITED_BYTES).unwrap()];
        let grow = [Replacement { old: "a".to_owned(), new: "ab".to_owned() }];
        let failure = replace_all([large.as_slice(), b"a"].concat(), &grow, LITERAL).unwrap_err();
        assert!(matches!(failure, WriteFailure::TooLarge(_)), "{failure}");
    }

    #[test]
    fn edits_that_are_none_are_refused() {
        let pair = |old: &str, new: &str| (old.to_owned(), new.to_owned());
        assert_eq!(of(r#"{"edits":[{"old_text":" ","new_text":""}]}"#), Ok(vec![pair(" ", "")]));
        assert_eq!(of(r#"{"edits":null,"find":"a","replace":"b"}"#), Ok(vec![pair("a", "b")]));
        let wrong = "Parameter 'edits' must be a list of objects with new_text and an old_text that is not empty";
        for bad in
            ["[]", "7", "{}", "[7]", r#"[{"old_text":"","new_text":"a"}]"#, r#"[{"old_text":"a"}]"#]
        {
            assert_eq!(of(&format!(r#"{{"edits":{bad}}}"#)), Err(wrong.to_owned()), "{bad}");
        }
        let both = r#"{"old_text":"a","new_text":"b","edits":[{"old_text":"a","new_text":"b"}]}"#;
        assert_eq!(of(both), Err("Give either old_text and new_text, or edits".to_owned()));
        let many = vec![r#"{"old_text":"a","new_text":"b"}"#; MAX_EDITS + 1].join(",");
        let text =
            format!("Parameter 'edits' has {} edits, {MAX_EDITS} are allowed", MAX_EDITS + 1);
        assert_eq!(of(&format!(r#"{{"edits":[{many}]}}"#)), Err(text));
        assert_eq!(of("{}"), Err("Missing required parameter 'old_text'".to_owned()));
    }

    #[test]
    fn one_occurrence_is_replaced_and_everything_else_stays() {
        type Case =
            (&'static [u8], &'static str, &'static str, Result<&'static [u8], &'static str>);
        let cases: &[Case] = &[
            (b"a b c", "b", "x", Ok(b"a x c")),
            (b"a b c", "a b c", "", Ok(b"")),
            (b"a  b", "  ", " ", Ok(b"a b")),
            (b"a b", "b", "$& $$ $1 \\1", Ok(b"a $& $$ $1 \\1")),
            (b"\xef\xbb\xbfa\r\n\xffb\r\n", "a", "c", Ok(b"\xef\xbb\xbfc\r\n\xffb\r\n")),
            (b"a\r\nb", "a\nb", "", Err("old_text not found in file")),
            (b"aXa", "a", "", Err("old_text found 2 times (ambiguous edit)")),
            (b"aaa", "aa", "b", Err("old_text found 2 times (ambiguous edit)")),
            (b"aaaa", "aa", "b", Err("old_text found 2 times (ambiguous edit)")),
            (b"", "a", "b", Err("old_text not found in file")),
        ];
        for (content, old, new, expected) in cases {
            let expected = expected.map(<[u8]>::to_vec).map_err(str::to_owned);
            assert_eq!(replaced(content, old, new), expected, "{content:?} {old:?}");
        }
    }
}
