//! The user's own instructions for agents, which the session's agent gets before each turn. Only the supervisor can read
//! them: workers see nothing of the user's home.

use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use quackd_home::own_file;
use quackd_process::Writable;
use quackd_protocol::instructions::{InstructionFile, imports, joined};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Timeout for reading the files, because a disk may hang.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// Longest file, in bytes. A longer one is not read.
const MAX_BYTES: u64 = 64 * 1024;

/// Most imported files, and most imports within each other.
const MAX_IMPORTED: usize = 16;
const MAX_IMPORTS: usize = 4;

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
            let mut found =
                Found { home: &home, directory, writable: &writable, files: Vec::new() };
            found.add_blocking(name, &mut BTreeSet::new(), 0);
            Some(found.files).filter(|files| !files.is_empty())
        };
        files.iter().find_map(read).unwrap_or_default()
    };
    services.look(READ_LIMIT, read).await.ok()
}

/// The user's file and those that it imports.
struct Found<'a> {
    home: &'a Path,
    /// Directory of the file. Imports from elsewhere are left out.
    directory: &'a Path,
    writable: &'a Writable,
    files: Vec<InstructionFile>,
}

impl Found<'_> {
    /// Adds a file, and after it those that it imports. A link, or a file that commands can write, is left out: a session
    /// could write instructions for others.
    fn add_blocking(&mut self, path: &str, known: &mut BTreeSet<String>, depth: usize) {
        let is_first = known.insert(path.to_owned());
        let file = self.directory.join(path);
        if !is_first || MAX_IMPORTED < self.files.len() || self.leads_away_blocking(path) {
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
        for import in imports(&text).filter_map(|import| joined(parent, import)) {
            self.add_blocking(&import, known, depth + 1);
        }
    }

    /// Whether a directory on the way from the user's file to an import is a link.
    fn leads_away_blocking(&self, path: &str) -> bool {
        let above = Path::new(path).ancestors().skip(1).filter(|it| !it.as_os_str().is_empty());
        above.map(|it| self.directory.join(it)).any(|it| it.is_symlink())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_stay_in_the_directory_of_the_users_file_and_are_bounded() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let directory = home.join(".claude");
        let write = |path: &str, text: &str| {
            let path = home.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let read = |writable: &[&str]| -> Vec<String> {
            let writable = Writable::of_blocking(writable.iter().map(|it| home.join(it)), &home);
            let mut found = Found {
                home: &home,
                directory: &directory,
                writable: &writable,
                files: Vec::new(),
            };
            found.add_blocking("CLAUDE.md", &mut BTreeSet::new(), 0);
            found.files.into_iter().map(|file| file.path).collect()
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
