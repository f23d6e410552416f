//! Transcripts in a document: its fenced blocks, read into steps.
//!
//! ````text
//! ```transcript
//! # files: notes.txt="one\n"
//! > {"id":"1","method":"ping","params":{}}
//! < {"id":"1","ok":true,
//!     "data":{"pid":<pid>, ...}}
//! ```
//! ````
//!
//! A line with `>` is a request of the client and a line with `<` a line from the daemon. An indented line
//! continues the previous one. A line with `#` is a comment or a directive: `# files:` creates files in the
//! workspace, `# provider:` sets the answer of the web search provider, and `# closed` means that the daemon
//! closes the connection.

/// One transcript.
#[derive(Debug)]
pub(super) struct Block {
    /// Number of the transcript's first line in the document, for messages.
    pub(super) line: usize,
    pub(super) steps: Vec<Step>,
}

/// One step of a transcript.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) action: Action,
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Send(String),
    Expect(String),
    /// Names and contents.
    Files(Vec<(String, String)>),
    /// Status line and body.
    Provider(String, String),
    Closed,
}

/// Every transcript of a document.
pub(super) fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(document.lines()) {
        if !is_inside {
            is_inside = line == "```transcript";
            if is_inside {
                blocks.push(Block { line: number, steps: Vec::new() });
            }
            continue;
        }
        is_inside = line != "```";
        let steps = &mut blocks.last_mut().expect("a block was begun").steps;
        if is_inside && !line.is_empty() {
            read(line, number, steps);
        }
    }
    assert!(!is_inside, "the last transcript has no end");
    blocks
}

fn read(line: &str, number: usize, steps: &mut Vec<Step>) {
    let mut step = |action| steps.push(Step { line: number, action });
    if let Some(text) = line.strip_prefix("> ") {
        step(Action::Send(text.to_owned()));
    } else if let Some(text) = line.strip_prefix("< ") {
        step(Action::Expect(text.to_owned()));
    } else if let Some(files) = line.strip_prefix("# files: ") {
        step(Action::Files(files_of(files)));
    } else if let Some(answer) = line.strip_prefix("# provider: ") {
        let (status, body) = answer.split_at(answer.find(" {").expect("a status, then an object"));
        step(Action::Provider(status.to_owned(), body.trim_start().to_owned()));
    } else if line == "# closed" {
        step(Action::Closed);
    } else if line.starts_with("  ") {
        match steps.last_mut().map(|step| &mut step.action) {
            Some(Action::Send(text) | Action::Expect(text)) => text.push_str(line.trim_start()),
            _ => panic!("line {number} goes on with nothing: {line}"),
        }
    } else {
        assert!(line.starts_with('#'), "line {number} is no line of a transcript: {line}");
    }
}

/// `name="content" name="content"`, contents as JSON strings.
fn files_of(mut text: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    while let Some((name, rest)) = text.trim_start().split_once('=') {
        let mut contents = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let content = contents.next().expect("a content").expect("a JSON string");
        files.push((name.to_owned(), content));
        text = &rest[contents.byte_offset()..];
    }
    assert!(!files.is_empty() && text.trim().is_empty(), "not a list of files: {text}");
    files
}

#[test]
fn a_document_is_read_into_steps() {
    let document = "text\n```transcript\n# free\n# files: a=\"1\\n\" b/c=\"\"\n> {\"x\":\n    1}\n\n\
                    # provider: 200 OK {\"results\":[]}\n< {}\n# closed\n```\n> not a step\n```console\n> nor this\n```\n";
    let found = blocks(document);
    assert_eq!(found.len(), 1);
    let actions: Vec<&Action> = found[0].steps.iter().map(|step| &step.action).collect();
    let text = str::to_owned;
    let expected = [
        Action::Files(vec![(text("a"), text("1\n")), (text("b/c"), text(""))]),
        Action::Send(text("{\"x\":1}")),
        Action::Provider(text("200 OK"), text("{\"results\":[]}")),
        Action::Expect(text("{}")),
        Action::Closed,
    ];
    assert_eq!(actions, expected.iter().collect::<Vec<_>>());
    assert_eq!((found[0].line, found[0].steps[0].line), (2, 4));
}
