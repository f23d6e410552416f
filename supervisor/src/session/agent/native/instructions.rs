//! The user's own instructions for agents, which the session's agent gets before each turn. Only the supervisor can read
//! them: workers see nothing of the user's home.

use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use quackd_home::own_file;
use quackd_process::Writable;
use quackd_protocol::instructions::{Import, InstructionFile, imports, joined};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Timeout for reading the files, because a disk may hang.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// Longest file, in bytes. A longer one is not read.
const MAX_BYTES: u64 = 64 * 1024;

/// Most imported files, and the deepest chain of imports.
const MAX_IMPORTED: usize = 16;
const MAX_IMPORTS: usize = 4;

/// Endings of the files that `@~/` imports. A sentence that names a key file must not send the key to a model.
const TEXTS: [&str; 4] = [".md", ".markdown", ".mdc", ".txt"];

/// Reads the first of the user's files that exists: quackd's, Pi's, Codex's, Claude Code's and Gemini CLI's. `None` if they
/// could not be read in time.
pub(super) async fn of_user(
    services: Rc<SessionServices>,
    owner: Owner,
) -> Option<Vec<InstructionFile>> {
    let home = services.daemon.user_home.clone();
    let of_quackd = services.daemon.home.config_of_user();
    let of_quackd = of_quackd.and_then(|file| file.parent().map(Path::to_owned));

    let files = [
        (of_quackd.unwrap_or_else(|| home.join(".config/quackd")), "AGENTS.md"),
        (services.models.catalog().await.pi_directory().to_owned(), "AGENTS.md"),
        (home.join(".codex"), "AGENTS.md"),
        (home.join(".claude"), "CLAUDE.md"),
        (home.join(".gemini"), "GEMINI.md"),
    ];

    let writable = owner.writable().await?;
    let read = move || {
        let writable = Writable::of_blocking(writable, &home);
        let read = |(directory, name): &(PathBuf, &str)| {
            let files = Found::read_blocking(&home, &writable, directory, name);
            Some(files).filter(|files| !files.is_empty())
        };
        files.iter().find_map(read).unwrap_or_default()
    };
    services.look(READ_LIMIT, read).await.ok()
}

/// The user's file and those that it imports.
struct Found<'a> {
    home: &'a Path,
    writable: &'a Writable,
    known: BTreeSet<PathBuf>,
    files: Vec<InstructionFile>,
}

impl<'a> Found<'a> {
    /// Returns the file of this name in this directory, and those that it imports.
    fn read_blocking(
        home: &'a Path,
        writable: &'a Writable,
        directory: &'a Path,
        name: &str,
    ) -> Vec<InstructionFile> {
        let mut found = Self { home, writable, known: BTreeSet::new(), files: Vec::new() };
        found.add_blocking(directory, name, 0);
        found.files
    }

    /// Adds a file, and after it those that it imports from the directory `root` and below, or with `@~/`. A link, or a
    /// file that commands can write, is left out: a session could write instructions for others.
    fn add_blocking(&mut self, root: &'a Path, path: &str, depth: usize) {
        let file = root.join(path);
        let is_first = self.known.insert(file.clone());
        if !is_first || MAX_IMPORTED < self.files.len() || leads_away_blocking(root, path) {
            return;
        }
        if self.writable.held_blocking(&file).is_some() {
            return;
        }

        let Ok(bytes) = own_file::read_blocking(&file, MAX_BYTES) else { return };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.trim().is_empty() {
            return;
        }

        let shown = match file.strip_prefix(self.home) {
            Ok(below) => format!("~/{}", below.display()),
            Err(_) => file.display().to_string(),
        };
        self.files.push(InstructionFile { path: shown, text: text.clone() });

        if MAX_IMPORTS <= depth {
            return;
        }

        let parent = path.rfind('/').map_or("", |at| path.get(..=at).unwrap_or_default());
        for import in imports(&text) {
            let (root, path) = match import {
                Import::Relative(path) => (root, joined(parent, path)),
                Import::OfHome(path) => (self.home, joined("", path)),
            };
            let is_text = |path: &String| TEXTS.iter().any(|end| path.ends_with(end));
            if let Some(path) = path.filter(|path| root != self.home || is_text(path)) {
                self.add_blocking(root, &path, depth + 1);
            }
        }
    }
}

/// Whether a directory on the way from the root to a file is a link.
fn leads_away_blocking(root: &Path, path: &str) -> bool {
    let above = Path::new(path).ancestors().skip(1).filter(|it| !it.as_os_str().is_empty());
    above.map(|it| root.join(it)).any(|it| it.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::{TestDir, write_file};

    #[test]
    fn imports_stay_in_the_directory_of_the_users_file_and_are_bounded() {
        let home = TestDir::empty();
        let directory = home.join(".claude");
        let write = |path: &str, text: &str| {
            write_file(home.join(path), text);
        };
        let read = |writable: &[&str]| -> Vec<String> {
            let writable = Writable::of_blocking(writable.iter().map(|it| home.join(it)), &home);
            let files = Found::read_blocking(&home, &writable, &directory, "CLAUDE.md");
            files.into_iter().map(|file| file.path).collect()
        };
        assert_eq!(read(&[]), [""; 0]);
        write(
            ".claude/CLAUDE.md",
            "@rules/a.md @../.ssh/id @/etc/hostname @link/x.md @linked.md @none.md",
        );
        write(".claude/rules/a.md", "@b.md @../CLAUDE.md");
        write(".claude/rules/b.md", "of b");
        write(".ssh/id", "SECRET");
        write("elsewhere/x.md", "SECRET");
        std::os::unix::fs::symlink(home.join("elsewhere"), directory.join("link")).unwrap();
        std::os::unix::fs::symlink(home.join(".ssh/id"), directory.join("linked.md")).unwrap();
        let all = ["~/.claude/CLAUDE.md", "~/.claude/rules/a.md", "~/.claude/rules/b.md"];
        assert_eq!(read(&[]), all);
        // A session works in the directory of the rules.
        assert_eq!(read(&[".claude/rules"]), all[..1]);
        assert_eq!(read(&[".claude"]), [""; 0]);
        // With `@~/`, files of the home, but no keys.
        write(
            ".claude/CLAUDE.md",
            "@~/notes.md @~/.ssh/id @~/elsewhere/../../x.md @~/linked/y.md @~other/x.md @~/.claude/rules/b.md `@~/x.md`",
        );
        write("notes.md", "@elsewhere/x.md @.ssh/id @~/notes.md @../x.md");
        std::os::unix::fs::symlink(home.join("elsewhere"), home.join("linked")).unwrap();
        write("elsewhere/y.md", "SECRET");
        write("x.md", "SECRET");
        let all = ["~/.claude/CLAUDE.md", "~/notes.md", "~/elsewhere/x.md", "~/.claude/rules/b.md"];
        assert_eq!(read(&[]), all);
        assert_eq!(read(&["elsewhere"]), [all[0], all[1], all[3]]);
        for n in 0..40 {
            write(&format!(".claude/{n}.md"), &format!("@{}.md", n + 1));
        }
        write(".claude/CLAUDE.md", "@0.md");
        assert_eq!(read(&[]).len(), 1 + MAX_IMPORTS);
        let many: String = (0..40).map(|n| format!("@{n}.md\n")).collect();
        write(".claude/CLAUDE.md", &many);
        assert_eq!(read(&[]).len(), 1 + MAX_IMPORTED);
    }
}
