//! Files that the session's agent gets in another form than text: the instructions of the project, and images. Only the
//! supervisor makes these calls, for its agent.

use crate::arguments::Arguments;
use crate::bash::shell;
use crate::call_limits::CallLimits;
use crate::git_state::git_state;
use crate::{Data, Output, Toolbox};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::instructions::{Import, imports, joined};
use quackd_protocol::tools::{ImageArguments, InstructionsArguments};
use quackd_sandbox::Root;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

/// Files with instructions for agents. Of each group, only the first file that exists is read.
const INSTRUCTION_FILES: [&[&str]; 3] = [
    &["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md", ".cursorrules"],
    &["AGENTS.local.md", "CLAUDE.local.md"],
    &[".pi/APPEND_SYSTEM.md"],
];

/// Files with instructions in directories between the root and the directory of the user. Only the first that exists in
/// each is read.
const BELOW: &[&str] = &["AGENTS.md", "CLAUDE.md", "GEMINI.md"];

/// Most directories below the root whose instructions are read, most imported files, and most imports within each other.
const MAX_DEPTH: usize = 16;
const MAX_IMPORTED: usize = 16;
const MAX_IMPORTS: usize = 4;

/// Most bytes of one file with instructions. The rest is cut, and the text tells the reader.
const MAX_INSTRUCTIONS: u64 = 32 * 1024;

/// Largest image, in bytes. Providers refuse larger ones.
const MAX_IMAGE: u64 = 3 * 1024 * 1024;

/// Returns the files with instructions: `files` with `path` and `text`; the name of the `shell`; `git`, the
/// [state](git_state) of the repository; and `workspace`, the path of a copy that is not at the path of the workspace.
/// The parameter `directory` is that of the user, relative to the root; `head` is that of the last `git`.
pub(crate) async fn quack_instructions(
    toolbox: &Toolbox,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let InstructionsArguments { directory, head } = InstructionsArguments::of(arguments.object());
    let (directory, head) = (directory.unwrap_or_default(), head.unwrap_or_default());

    let of_files = Arc::clone(&root);
    let files = bounds.run_blocking(move || instructions_blocking(&of_files, &directory)).await;
    match files {
        Ok(files) => {
            let git = git_state(toolbox, &root, &head, bounds).await;
            let shell = shell("").0;
            let shell = Path::new(&shell).file_name().map(|name| name.to_string_lossy());
            let workspace = toolbox.copy().map(Path::to_string_lossy);
            let data =
                json!({ "files": files, "shell": shell, "git": git, "workspace": workspace });
            Output { data: Some(Data::from(data)), ..Output::success(String::new()) }
        }
        Err(cutoff) => Output::cut_off("Reading the instructions", bounds, cutoff),
    }
}

/// Files with instructions, in the order in which the model gets them.
struct Found<'a> {
    root: &'a Root,
    known: BTreeSet<String>,
    imported: usize,
    files: Vec<Value>,
}

fn instructions_blocking(root: &Root, directory: &str) -> Vec<Value> {
    let mut found = Found { root, known: BTreeSet::new(), imported: 0, files: Vec::new() };
    for group in INSTRUCTION_FILES {
        found.first_blocking("", group);
    }

    let mut below = String::new();
    for name in directory.split('/').filter(|name| !matches!(*name, "" | ".")).take(MAX_DEPTH) {
        below.push_str(name);
        below.push('/');
        found.first_blocking(&below, BELOW);
    }
    found.files
}

impl Found<'_> {
    /// Adds the first of these files of a directory, which ends with a slash.
    fn first_blocking(&mut self, directory: &str, names: &[&str]) {
        let mut paths = names.iter().map(|name| format!("{directory}{name}"));
        // `any` stops at the first file that was added.
        let _is_found = paths.any(|path| self.add_blocking(&path, 0));
    }

    /// Adds a file, and after it those that it imports. Returns whether it exists and has a text.
    fn add_blocking(&mut self, path: &str, depth: usize) -> bool {
        // The first files are few, so only imports are limited. A known path is in the list already, or imports itself.
        if 0 < depth && MAX_IMPORTED <= self.imported || self.known.contains(path) {
            return false;
        }
        let Some(text) = self.read_blocking(path) else { return false };

        self.imported += usize::from(0 < depth);
        self.known.insert(path.to_owned());
        self.files.push(json!({ "path": path, "text": text }));

        if depth < MAX_IMPORTS {
            let parent = path.rfind('/').map_or("", |at| path.get(..=at).unwrap_or_default());
            for import in imports(&text) {
                // A command can write this text. It must not name files of the user's home.
                if let Import::Relative(import) = import
                    && let Some(path) = joined(parent, import)
                {
                    self.add_blocking(&path, depth + 1);
                }
            }
        }

        true
    }

    fn read_blocking(&self, path: &str) -> Option<String> {
        let file = self.root.open_file(path).ok()?;
        let is_cut = MAX_INSTRUCTIONS < file.len;
        let mut bytes = Vec::new();
        file.file.take(MAX_INSTRUCTIONS).read_to_end(&mut bytes).ok()?;

        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if is_cut {
            text.push_str(&format!("\n(Cut after {} KiB.)", MAX_INSTRUCTIONS / 1024));
        }
        (!text.trim().is_empty()).then_some(text)
    }
}

/// Returns an image in base64: `image` with `mime_type` and `data`.
pub(crate) async fn quack_image(
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let ImageArguments { path } = ImageArguments::of(arguments.object());
    let Some(path) = arguments.directory().path_of(path) else {
        return Output::error("Missing required parameter 'path'");
    };

    let shown = path.clone();
    match bounds.run_blocking(move || image_blocking(&root, &path)).await {
        Ok(Ok((mime_type, bytes))) => {
            let text = format!("[Image {shown}, {mime_type}, {} bytes]", bytes.len());
            let image = json!({ "mime_type": mime_type, "data": STANDARD.encode(bytes) });
            let data = Data::from(json!({ "image": image }));
            Output { data: Some(data), ..Output::success(text) }
        }
        Ok(Err(error)) => Output::error(format_args!("Cannot read the image '{shown}': {error}")),
        Err(cutoff) => Output::cut_off("Reading the image", bounds, cutoff),
    }
}

fn image_blocking(root: &Root, path: &str) -> io::Result<(&'static str, Vec<u8>)> {
    let file = root.open_file(path).map_err(io::Error::other)?;
    let too_large = || {
        io::Error::other(format!(
            "it is larger than {} MiB; shrink it first",
            MAX_IMAGE / 1024 / 1024
        ))
    };

    if MAX_IMAGE < file.len {
        return Err(too_large());
    }

    let mut bytes = Vec::new();
    // The file may have grown since its length was read.
    file.file.take(MAX_IMAGE + 1).read_to_end(&mut bytes)?;
    if MAX_IMAGE < bytes.len().try_into().unwrap_or(u64::MAX) {
        return Err(too_large());
    }

    let kind = mime_type(&bytes);
    let kind = kind.ok_or_else(|| io::Error::other("it is not a PNG, JPEG, GIF or WebP file"))?;
    Ok((kind, bytes))
}

/// Returns the type of an image by its content.
fn mime_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::write_file;

    #[test]
    fn the_first_file_of_each_group_is_read_within_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(instructions_blocking(&root, ""), [Value::Null; 0]);
        std::fs::write(dir.path().join("CLAUDE.md"), "second").unwrap();
        std::fs::write(dir.path().join("CLAUDE.local.md"), "x".repeat(40_000)).unwrap();
        let files = instructions_blocking(&root, "");
        assert_eq!(files[0], json!({ "path": "CLAUDE.md", "text": "second" }));
        assert!(files[1]["text"].as_str().unwrap().ends_with("x\n(Cut after 32 KiB.)"));
        std::fs::write(dir.path().join("AGENTS.md"), "first").unwrap();
        assert_eq!(instructions_blocking(&root, "")[0]["path"], "AGENTS.md");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(".cursorrules")).unwrap();
        std::fs::remove_file(dir.path().join("AGENTS.md")).unwrap();
        std::fs::remove_file(dir.path().join("CLAUDE.md")).unwrap();
        assert_eq!(instructions_blocking(&root, "").len(), 1, "a link out of the workspace");
    }

    #[test]
    fn directories_down_to_the_user_and_imports_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let write = |path: &str, text: &str| {
            write_file(dir.path().join(path), text);
        };
        write(
            "AGENTS.md",
            "see @docs/style.md, @docs/none.md and `@docs/code.md`\n```\n@docs/code.md\n```\n",
        );
        write(
            "docs/style.md",
            "@./more.md @../AGENTS.md @../../outside.md @/etc/passwd @~/.ssh/id me@docs/code.md",
        );
        write("docs/more.md", "more");
        write("docs/code.md", "code");
        // Names that a path of the user's home has after its tilde, and with it.
        write(".ssh/id", "home");
        write("~/.ssh/id", "home");
        write("a/CLAUDE.md", "of a");
        write("a/b/c/AGENTS.md", "of c");
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("a/b/AGENTS.md")).unwrap();
        let paths = |directory: &str| -> Vec<String> {
            let files = instructions_blocking(&root, directory);
            files.iter().map(|it| it["path"].as_str().unwrap().to_owned()).collect()
        };
        let common = ["AGENTS.md", "docs/style.md", "docs/more.md"];
        assert_eq!(paths(""), common);
        assert_eq!(paths("a/b/c"), [&common[..], &["a/CLAUDE.md", "a/b/c/AGENTS.md"]].concat());
        assert_eq!(paths("../x"), common);
        // A chain and a circle end.
        for n in 0..40 {
            write(&format!("chain/{n}.md"), &format!("@{}.md", (n + 1) % 40));
        }
        write("AGENTS.md", "@chain/0.md");
        assert_eq!(paths("").len(), 1 + MAX_IMPORTS);
        let many: String = (0..60).map(|n| format!("@chain/{n}.md\n")).collect();
        write("AGENTS.md", &many);
        assert_eq!(
            paths("a/b/c").len(),
            1 + MAX_IMPORTED + 2,
            "imports leave room for directories"
        );
    }

    #[test]
    fn an_image_is_known_by_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("a.png"), b"GIF89a...").unwrap();
        assert_eq!(image_blocking(&root, "a.png").unwrap().0, "image/gif");
        std::fs::write(dir.path().join("b.png"), b"text").unwrap();
        let error = image_blocking(&root, "b.png").unwrap_err().to_string();
        assert_eq!(error, "it is not a PNG, JPEG, GIF or WebP file");
        std::fs::write(dir.path().join("c.png"), vec![0; 4 * 1024 * 1024]).unwrap();
        let error = image_blocking(&root, "c.png").unwrap_err().to_string();
        assert_eq!(error, "it is larger than 3 MiB; shrink it first");
    }
}
