//! Parameters of read_file, write_file and edit_file.

use super::arguments::arguments;
use super::forms::{Checked, FromOne, MayBeEmpty, NotEmpty};
use super::row::{Kind, Offer, Parameter, READS, Tool, WRITES, flag, named, text, whole};
use serde_json::Value;

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[READ_FILE, WRITE_FILE, EDIT_FILE];

pub(super) const PATH: Parameter =
    text("The file, relative to the workspace, or an absolute path inside it.")
        .also(&["file", "filepath", "file_path", "filename"])
        .required();

/// Names of the text that `edit_file` replaces. An edit of a list has the same ones.
pub const OLD_TEXT: &[&str] = &["old_text", "oldText", "find"];

/// Names of the text in its place.
pub const NEW_TEXT: &[&str] = &["new_text", "newText", "replace"];

arguments! {
    /// Arguments of `read_file`.
    ReadFileArguments of READ_FILE {
        path: Option<String> = PATH,
        offset: Checked<FromOne> = whole(1, u64::MAX, "First line to return, from 1. Allows files of any size."),
        limit: Checked<FromOne> = whole(
            1,
            u64::MAX,
            "Number of lines to return; 2,000 if only `offset` or `line_numbers` is set.",
        ),
        line_numbers: bool = flag("Put the number of each line and a tab before it."),
        max_bytes: Checked<FromOne> = whole(1, u64::MAX, "Largest size of the lines, at most 1 MiB.").rare(),
    }
}

/// Reads a file.
pub const READ_FILE: Tool = Tool {
    name: "read_file",
    about: "Read a text file. A file of more than 1 MiB needs offset and limit; the answer says how to go on. Set line_numbers to \
            refer to lines. Use search for text in files, find for names. Example: {\"path\":\"src/main.rs\",\"offset\":100,\"limit\":50}.",
    brief: Some(("Read a text file, or some of its lines.", &["path", "offset", "limit"])),
    main: Some("path"),
    file: Some("path"),
    offer: Offer::Look,
    of_pi: &["read"],
    parameters: ReadFileArguments::PARAMETERS,
    ..READS
};

arguments! {
    /// Arguments of `write_file`.
    WriteFileArguments {
        path: Option<String> = PATH,
        content: MayBeEmpty = text("The new content, whole. May be empty.").required(),
    }
}

/// Writes a whole file.
pub const WRITE_FILE: Tool = Tool {
    name: "write_file",
    about: "Create a file, or replace its whole content. Creates missing directories. Use edit_file to change a part of a file. \
            A file that another program changed since you read it is not overwritten: read it again first.",
    brief: Some(("Write a whole file.", &["path", "content"])),
    file: Some("path"),
    is_idempotent: true,
    offer: Offer::Work,
    of_pi: &["write"],
    parameters: WriteFileArguments::PARAMETERS,
    ..WRITES
};

const EDITED: Parameter = named(OLD_TEXT, "Text to replace; spaces and line ends count.");
const REPLACEMENT: Parameter =
    named(NEW_TEXT, "Replacement, taken literally. Empty deletes the text.");

arguments! {
    /// One of the `edits` of `edit_file`.
    EditArguments {
        old_text: NotEmpty = EDITED,
        new_text: MayBeEmpty = REPLACEMENT,
    }
}

arguments! {
    /// Arguments of `edit_file`.
    EditFileArguments {
        path: Option<String> = PATH,
        old_text: NotEmpty = EDITED,
        new_text: MayBeEmpty = REPLACEMENT,
        edits: Option<Value> = Parameter::new(
            Kind::Edits(&["old_text", "new_text"]),
            "Instead of old_text and new_text: up to 100 edits, made in this order.",
        ),
        any_line_ending: Option<Value> = flag(
            "LF in the texts stands for the line end of each line of the file.",
        )
        .or("true")
        .rare(),
        similar: bool = flag(
            "Quotes, dashes, and blanks at line ends may differ if old_text occurs once then.",
        )
        .or("false")
        .rare(),
        diff: bool = flag("Return diff, patch and firstChangedLine as data.").or("false").rare(),
    }
}

/// Replaces parts of a file.
pub const EDIT_FILE: Tool = Tool {
    name: "edit_file",
    about: "Replace exact pieces of text in one file: old_text by new_text, or several edits in one call, all or none. An \
            old_text must occur exactly once, so give enough lines around the change. Use replace for many files. Example: \
            {\"path\":\"a.py\",\"edits\":[{\"old_text\":\"x = 1\",\"new_text\":\"x = 2\"}]}.",
    brief: Some((
        "Replace old_text, which must occur exactly once, by new_text.",
        &["path", "old_text", "new_text"],
    )),
    file: Some("path"),
    offer: Offer::Work,
    of_pi: &["edit"],
    parameters: EditFileArguments::PARAMETERS,
    ..WRITES
};
