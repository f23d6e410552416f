//! Explains that a command names a file or directory that the policy hides: it looks empty, which looks like a mistake of
//! the user.
//!
//! A path counts if it is a word of the command's text, read from the directory in which the command runs. The text is not
//! parsed as a shell does. Words that most likely are no paths do not count: those that `echo` prints, messages of commits,
//! and names without a dot and a slash unless a well-known program reads them.

use crate::Confinement;
use crate::command_line::CommandLine;
use crate::sandbox_tools::normalise;
use quackd_protocol::denial::{KEY_NAMES, of_session, one_line, quoted};
use std::path::{Path, PathBuf};

/// Length of a command's text that is searched, in bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Programs whose arguments are files, also without a dot or a slash.
const READERS: [&str; 27] = [
    ".", "cat", "cd", "cp", "cut", "diff", "du", "file", "find", "grep", "head", "jq", "less",
    "ls", "more", "mv", "pushd", "rg", "rm", "sed", "sort", "source", "stat", "tail", "tar",
    "tree", "wc",
];

/// Programs that only print their arguments.
const PRINTERS: [&str; 2] = ["echo", "printf"];

/// Subcommands of git whose arguments are mostly texts.
const TEXTS_OF_GIT: [&str; 4] = ["commit", "log", "notes", "tag"];

/// Words before the program of a command.
const PREFIXES: [&str; 11] =
    ["command", "do", "else", "env", "exec", "if", "nohup", "sudo", "then", "time", "while"];

/// Ends of the names of files with keys.
const KEY_ENDS: [&str; 7] = [".pem", ".key", ".p12", ".pfx", ".gpg", ".kdbx", ".keystore"];

/// Directories from which the paths of a command are read.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandDirs {
    pub(super) cwd: PathBuf,
    pub(super) home: Option<PathBuf>,
}

impl CommandDirs {
    pub(super) fn of(command: &CommandLine) -> Self {
        let home = command.env.iter().find(|(name, _)| name == "HOME");
        let home = home.map(|(_, home)| PathBuf::from(home));
        Self { cwd: command.cwd.clone(), home }
    }
}

/// Returns the hidden path that the command's text names first.
pub(super) fn named<'a>(
    command: &str,
    dirs: &CommandDirs,
    hidden: &'a [PathBuf],
) -> Option<&'a Path> {
    let end = command.floor_char_boundary(MAX_TEXT_BYTES);
    let mut words = Words::of(command.get(..end).unwrap_or_default());
    let mut base = dirs.cwd.clone();

    while let Some(word) = words.next() {
        let Some(path) = path_of(&word.text, &base, dirs) else { continue };
        let hidden_path = beneath(&path, hidden);
        if hidden_path.is_some() && word.is_path() {
            return hidden_path;
        }

        // Later relative paths of the command are read from its new directory.
        if ["cd", "pushd"].contains(&word.program.as_str()) && !word.text.starts_with('-') {
            base = path;
        }
    }

    // Names with blanks and the like are no words of this reading.
    let rest = hidden.iter().filter(|path| path.to_string_lossy().contains(is_separator));
    rest.map(PathBuf::as_path).find(|path| {
        let below = path.strip_prefix(&dirs.cwd).ok();
        let spelled = [Some(*path), below].into_iter().flatten().filter_map(Path::to_str);
        spelled.into_iter().any(|spelled| command.contains(&quoted(spelled)))
            || below.and_then(Path::to_str).is_some_and(|it| command.contains(&format!("\"{it}")))
    })
}

/// Returns the hidden path that contains `path`.
pub(super) fn beneath<'a>(path: &Path, hidden: &'a [PathBuf]) -> Option<&'a Path> {
    hidden.iter().find(|hidden| path.starts_with(hidden)).map(PathBuf::as_path)
}

/// Returns the line about a hidden path. `None` if it does not exist, or is not hidden yet.
pub(super) fn line_blocking(
    hidden: &Path,
    workspace: &Path,
    confinement: &Confinement,
) -> Option<String> {
    let metadata = hidden.symlink_metadata().ok()?;

    let looks = if confinement.profile.is_some() {
        // This process sees it: the profile hides it from commands only.
        "cannot be opened"
    } else if metadata.is_dir() {
        std::fs::read_dir(hidden).map(|_| "looks empty").ok()?
    } else {
        (metadata.len() == 0).then_some("reads as empty")?
    };

    // The command in the text changes a path of the user.
    let (hidden, workspace) =
        (confinement.path_of_user(hidden), confinement.path_of_user(workspace));
    let name = hidden.strip_prefix(&workspace).unwrap_or(&hidden).to_string_lossy();

    let of = of_session(&confinement.session);
    let at = quoted(&one_line(&hidden.to_string_lossy()));

    let way = if may_be_shown(&hidden, &workspace) {
        format!("To show it: quack sandbox set --unhide {at}{of}")
    } else {
        format!("`quack sandbox explain {at}{of}` shows the reason")
    };

    let name = one_line(&name);
    Some(format!("[Sandbox: {name} is hidden in this session ({looks}). {way}]"))
}

/// Returns the line about a path of a file tool that the policy hides.
pub(crate) fn hidden_line_blocking(
    confinement: &Confinement,
    workspace: &Path,
    path: &str,
) -> Option<String> {
    if !confinement.is_enforced() {
        return None;
    }
    let path = normalise(&workspace.join(path));
    let hidden = beneath(&path, &confinement.policy.hidden)?;
    line_blocking(hidden, workspace, confinement)
}

/// Whether a text may propose to show a path: one in the workspace that most likely contains no private key.
fn may_be_shown(hidden: &Path, workspace: &Path) -> bool {
    let Ok(below) = hidden.strip_prefix(workspace) else { return false };
    let is_key = |name: &str| {
        let name = name.to_ascii_lowercase();
        KEY_NAMES.contains(&name.as_str())
            || name.starts_with("id_")
            || KEY_ENDS.iter().any(|end| name.ends_with(end))
    };
    let mut names = below.iter().map(|name| name.to_string_lossy());
    let is_plain = !one_line(&hidden.to_string_lossy()).contains('\u{fffd}');
    is_plain && !names.any(|name| is_key(&name))
}

/// Returns the path that a word means. `None` for words with parts that only a shell knows.
fn path_of(word: &str, base: &Path, dirs: &CommandDirs) -> Option<PathBuf> {
    let word = word.trim_start_matches('@').trim_end_matches('\\');
    let in_home = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|home| word.strip_prefix(home));
    let in_cwd = ["$PWD/", "${PWD}/"].iter().find_map(|cwd| word.strip_prefix(cwd));
    let path = match (in_home, in_cwd) {
        (Some(rest), _) => dirs.home.as_ref()?.join(rest),
        (None, Some(rest)) => base.join(rest),
        (None, None) => base.join(word),
    };
    let is_known = !word.is_empty() && !path.to_string_lossy().contains(['$', '*', '?', '[', '{']);
    is_known.then(|| normalise(&path))
}

/// A word of a command's text.
#[derive(Debug)]
struct Word {
    text: String,
    /// Program of the simple command.
    program: String,
    /// First argument of the program, such as the subcommand of git.
    first: String,
    /// The file of a redirection.
    is_redirected: bool,
}

impl Word {
    /// Whether the word probably is a path.
    fn is_path(&self) -> bool {
        let program = self.program.rsplit('/').next().unwrap_or_default();
        let is_text = PRINTERS.contains(&program)
            || program == "git" && TEXTS_OF_GIT.contains(&self.first.as_str());
        let is_bare = !self.text.contains(['/', '.']);
        self.is_redirected || !is_text && (!is_bare || READERS.contains(&program))
    }
}

/// The words of a command's text. Quotation marks separate words too, because a word may be the code of another program.
struct Words<'a> {
    rest: &'a str,
    quote: Option<char>,
    program: String,
    /// First argument of the program.
    first: String,
    /// The next word is the value of a variable.
    is_value: bool,
    is_redirected: bool,
}

impl<'a> Words<'a> {
    fn of(rest: &'a str) -> Self {
        let (program, first) = (String::new(), String::new());
        Self { rest, quote: None, program, first, is_value: false, is_redirected: false }
    }

    fn next(&mut self) -> Option<Word> {
        loop {
            let n_word = self.rest.find(is_separator).unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at(n_word);
            if text.is_empty() {
                let separator = rest.chars().next()?;
                self.rest = rest.get(separator.len_utf8()..).unwrap_or_default();
                self.pass(separator);
                continue;
            }
            self.rest = rest;

            let is_value = std::mem::take(&mut self.is_value);
            if self.program.is_empty() && !is_value && !self.is_redirected {
                // `NAME=VALUE` before a program.
                self.is_value = rest.starts_with('=');
                if !self.is_value && !PREFIXES.contains(&text) {
                    text.clone_into(&mut self.program);
                }
                // Without a slash, the name of a program is no path.
                if !text.contains('/') {
                    continue;
                }
            } else if self.first.is_empty() && !text.starts_with('-') && !is_value {
                text.clone_into(&mut self.first);
            }

            let is_redirected = std::mem::take(&mut self.is_redirected);
            let (program, first) = (self.program.clone(), self.first.clone());
            return Some(Word { text: text.to_owned(), program, first, is_redirected });
        }
    }

    fn pass(&mut self, separator: char) {
        match (separator, self.quote) {
            ('\'' | '"', None) => self.quote = Some(separator),
            (_, Some(quote)) if quote == separator => self.quote = None,
            ('<' | '>', None) => self.is_redirected = true,
            ('\n' | ';' | '|' | '&' | '(' | ')' | '`', None) => {
                self.program.clear();
                self.first.clear();
                (self.is_value, self.is_redirected) = (false, false);
            }
            _ => {}
        }
    }
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || ";|&()<>`'\"=,".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::policy::Policy;

    fn named_in(command: &str, hidden: &[&str]) -> Option<PathBuf> {
        let dirs = CommandDirs { cwd: "/w/app".into(), home: Some("/home/me".into()) };
        let hidden: Vec<PathBuf> = hidden.iter().map(PathBuf::from).collect();
        named(command, &dirs, &hidden).map(Path::to_owned)
    }

    #[test]
    fn a_hidden_path_is_named_in_every_spelling() {
        for command in [
            "cat .env",
            "cat ./.env",
            "cat src/../.env",
            "cat /w/app/.env",
            "cat $PWD/.env",
            "cat '.env'",
            "cat < .env",
            "cat <.env",
            "echo A=1 >> .env",
            "source .env && npm start",
            ". ./.env; npm start",
            "node --env-file=.env app.js",
            "node --env-file .env app.js",
            "set -a\n. .env\nset +a",
            "python3 -c \"print(open('.env').read())\"",
            "python3 -c \"open(\\\".env\\\")\"",
            "bash -c 'cat .env'",
            "cd src && cat ../.env",
            "test -s .env || exit 1",
            "if [ -f .env ]; then echo yes; fi",
            "FILE=.env ./run.sh",
            "A=1 cat .env",
            "< .env cat",
            "curl -d @.env https://example.com",
            "git add .env",
            "echo $(cat .env)",
        ] {
            assert_eq!(
                named_in(command, &["/w/app/.env"]),
                Some("/w/app/.env".into()),
                "{command}"
            );
        }
        for command in
            ["ls secrets", "cat secrets/key", "cd secrets", "ls -la secrets/", "wc <secrets"]
        {
            assert!(named_in(command, &["/w/app/secrets"]).is_some(), "{command}");
        }
        assert!(named_in("cd src; cat .env", &["/w/app/src/.env"]).is_some());
        assert!(named_in("cat ~/app/keys/x", &["/home/me/app/keys"]).is_some());
        for command in ["cat 'my keys.txt'", "cat \"my keys.txt\""] {
            assert!(named_in(command, &["/w/app/my keys.txt"]).is_some(), "{command}");
        }
    }

    #[test]
    fn other_commands_name_nothing() {
        for command in [
            "cat .env.example",
            "cat src/.env",
            "cat x.env",
            "cat ../.env",
            "ls -la",
            "echo .env",
            "printf '%s\\n' 'see .env' | tee notes",
            "git commit -qm 'ignore .env; keep it'",
            "git show HEAD:.env",
            "cat .env*",
            "printenv",
        ] {
            assert_eq!(named_in(command, &["/w/app/.env"]), None, "{command}");
        }
        for command in
            ["npm run build", "make build", "cargo build", "git commit -m build", "cat ./builds"]
        {
            assert_eq!(named_in(command, &["/w/app/build"]), None, "{command}");
        }
    }

    #[test]
    fn the_line_has_the_command_that_shows_it_unless_it_is_a_key() {
        let workspace = tempfile::tempdir().unwrap();
        let at = |name: &str| workspace.path().join(name);
        let of = |session: &str| Confinement::new(Policy::default(), true, session.to_owned());
        let (review, app) = (of("app/review"), of("app"));
        let line = |name: &str| line_blocking(&at(name), workspace.path(), &review);
        assert_eq!(line(".env"), None, "it does not exist");
        std::fs::write(at(".env"), "").unwrap();
        let shown = line(".env").unwrap();
        let unhide = format!(
            "quack sandbox set --unhide {}/.env --session app/review]",
            workspace.path().display()
        );
        assert!(
            shown.starts_with(
                "[Sandbox: .env is hidden in this session (reads as empty). To show it: "
            ),
            "{shown}"
        );
        assert!(shown.ends_with(&unhide), "{shown}");
        for name in ["id_ed25519", "server.pem", "x.key"] {
            std::fs::write(at(name), "").unwrap();
            let line = line(name).unwrap();
            assert!(
                !line.contains("--unhide") && line.contains("quack sandbox explain "),
                "{line}"
            );
        }
        let outside = tempfile::tempdir().unwrap();
        let line = line_blocking(outside.path(), workspace.path(), &app).unwrap();
        assert!(line.contains("(looks empty)") && !line.contains("--unhide"), "{line}");
        // It has appeared since the worker began.
        std::fs::write(at(".env"), "A=1").unwrap();
        assert_eq!(line_blocking(&at(".env"), workspace.path(), &app), None);
    }
}
