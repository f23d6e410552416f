//! Parameters of read_file, write_file and edit_file.

use super::{Parameter, Tool, flag, text, whole};

/// The tools of this file, in the order of the documentation.
pub(super) const TOOLS: &[Tool] = &[READ_FILE, WRITE_FILE, EDIT_FILE];

const PATH: Parameter =
    text("path", "The file, relative to the workspace, or an absolute path inside it.")
        .also(&["file", "filepath", "file_path", "filename"])
        .required();

const READ_FILE: Tool = Tool {
    name: "read_file",
    about: "Returns the whole content of a text file of at most 1 MiB, or some lines of a file of any size.",
    main: Some("path"),
    is_strict: false,
    reads_only: true,
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
    ],
};

const WRITE_FILE: Tool = Tool {
    name: "write_file",
    about: "Creates a file or replaces its whole content. Creates missing directories. Does not overwrite a file \
            that another program changed since this session read it: read the file again first.",
    main: None,
    is_strict: false,
    reads_only: false,
    parameters: &[PATH, text("content", "The new content, whole. May be empty.").required()],
};

const EDIT_FILE: Tool = Tool {
    name: "edit_file",
    about: "Replaces one piece of text in one file. The rest of the file stays as it is, byte for byte.",
    main: None,
    is_strict: false,
    reads_only: false,
    parameters: &[
        PATH,
        text("old_text", "Text to replace. Must occur exactly once; spaces and line ends count.")
            .also(&["oldText", "find"])
            .required(),
        text("new_text", "Replacement, taken literally. Empty deletes the text.")
            .also(&["newText", "replace"])
            .required(),
    ],
};
