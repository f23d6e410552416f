//! Parameters of read_file, write_file and edit_file.

use super::row::{Kind, Offer, Parameter, READS, Tool, WRITES, flag, named, text, whole};

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[READ_FILE, WRITE_FILE, EDIT_FILE];

const PATH: Parameter =
    text("path", "The file, relative to the workspace, or an absolute path inside it.")
        .also(&["file", "filepath", "file_path", "filename"])
        .required();

/// Names of the text that `edit_file` replaces. An edit of a list has the same ones.
pub const OLD_TEXT: &[&str] = &["old_text", "oldText", "find"];

/// Names of the text in its place.
pub const NEW_TEXT: &[&str] = &["new_text", "newText", "replace"];

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
    parameters: &[
        PATH,
        whole("offset", 1, u64::MAX, "First line to return, from 1. Allows files of any size."),
        whole(
            "limit",
            1,
            u64::MAX,
            "Number of lines to return; 2,000 if only `offset` or `line_numbers` is set.",
        ),
        flag("line_numbers", "Put the number of each line and a tab before it."),
        whole("max_bytes", 1, u64::MAX, "Largest size of the lines, at most 1 MiB.").rare(),
    ],
    ..READS
};

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
    parameters: &[PATH, text("content", "The new content, whole. May be empty.").required()],
    ..WRITES
};

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
    parameters: &[
        PATH,
        named(OLD_TEXT, "Text to replace; spaces and line ends count."),
        named(NEW_TEXT, "Replacement, taken literally. Empty deletes the text."),
        Parameter::new(
            "edits",
            Kind::Edits(&["old_text", "new_text"]),
            "Instead of old_text and new_text: up to 100 edits, made in this order.",
        ),
        flag(
            "any_line_ending",
            "LF in the texts stands for the line end of each line of the file.",
        )
        .or("true")
        .rare(),
        flag(
            "similar",
            "Quotes, dashes, and blanks at line ends may differ if old_text occurs once then.",
        )
        .or("false")
        .rare(),
        flag("diff", "Return diff, patch and firstChangedLine as data.").or("false").rare(),
    ],
    ..WRITES
};
