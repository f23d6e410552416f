//! read_file, write_file, edit_file.

use super::{Parameter, Tool, flag, text, whole};

const PATH: Parameter = text("path", "The file, relative to the workspace or absolute beneath it.")
    .also(&["file", "filepath", "file_path", "filename"])
    .required();

pub(super) const READ_FILE: Tool = Tool {
    name: "read_file",
    about: "Gives the whole content of a text file of at most 1 MiB, or some lines of a file of any size.",
    main: Some("path"),
    is_strict: false,
    reads_only: true,
    parameters: &[
        PATH,
        whole("offset", 1, u64::MAX, "First line to give, from 1. Any size of file then."),
        whole(
            "limit",
            1,
            u64::MAX,
            "Number of lines to give; 2,000 if only another of these is set.",
        ),
        flag("line_numbers", "Put the number of each line and a tab before it."),
    ],
};

pub(super) const WRITE_FILE: Tool = Tool {
    name: "write_file",
    about: "Makes a file or replaces its whole content; missing directories are made. A file that somebody else \
            changed since this session read it is not overwritten: read it again first.",
    main: None,
    is_strict: false,
    reads_only: false,
    parameters: &[PATH, text("content", "The new content, whole. May be empty.").required()],
};

pub(super) const EDIT_FILE: Tool = Tool {
    name: "edit_file",
    about: "Replaces one piece of text in one file. The rest of the file stays as it is, byte for byte.",
    main: None,
    is_strict: false,
    reads_only: false,
    parameters: &[
        PATH,
        text("old_text", "What is replaced. Must occur exactly once; spaces and line ends count.")
            .also(&["oldText", "find"])
            .required(),
        text("new_text", "What takes its place, literally. Empty deletes.")
            .also(&["newText", "replace"])
            .required(),
    ],
};
