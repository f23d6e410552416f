//! Asks the user's git for the credential of a repository: `git credential fill` (gitcredentials(7)).
//!
//! Git and its helpers run unconfined, so nothing that a session may write chooses what runs: the working directory is
//! `/`, the supervisor removes variables and entries of PATH that lead into such a directory, and git is not asked if its
//! settings or a program that they name do. Where the system allows namespaces, git sees these directories empty, for
//! programs that the settings do not name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_process::{
    Command, CommandInput, EndedBy, Exit, Limits, SelfExe, Wanted, Writable, become_program,
    complain, run,
};
use quackd_protocol::credentials::{CredentialRefusal, Repository};
use quackd_sandbox::git::UserSettings;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Subcommand that starts git without the directories of sessions.
const VERB: &str = "credential-git";

/// Time for git and its helpers.
const DEADLINE: Duration = Duration::from_secs(20);

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(1);

/// Largest output of git, in bytes.
const MAX_OUTPUT: u64 = 64 * 1024;

/// Variables against questions of git and its helpers, which no user would see. An empty `GIT_ASKPASS` also wins over
/// `core.askPass` and `SSH_ASKPASS`.
const UNASKED: [(&str, &str); 3] =
    [("GIT_ASKPASS", ""), ("GIT_TERMINAL_PROMPT", "0"), ("GCM_INTERACTIVE", "never")];

/// Variables of git that are passed on. Others could name a repository, settings or programs.
const KEPT: [&str; 3] = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// Returns the value of `Authorization` for the repository.
pub(crate) async fn authorization(
    repository: &Repository,
    env: Vec<(String, String)>,
    home: &Path,
    untrusted: &Writable,
) -> Result<String, CredentialRefusal> {
    let git = git_blocking(&env, home, untrusted).ok_or(CredentialRefusal::NoCredential)?;
    let exe = SelfExe::open().map_err(|_unknown| CredentialRefusal::Failed)?;
    let Repository { host, path } = repository;
    // With `credential.useHttpPath`, a helper may have the path as the user writes it.
    for end in ["", ".git"] {
        let input = CommandInput::default();
        let command = command(&exe, &git, untrusted, env.clone(), input.clone());
        let text = format!("protocol=https\nhost={host}\npath={path}{end}\n\n");
        if let Some(value) = fill(command, input, text).await? {
            return Ok(value);
        }
    }
    Err(CredentialRefusal::NoCredential)
}

/// Asks git once. `None` if it has no credential.
async fn fill(
    command: Command,
    input: CommandInput,
    text: String,
) -> Result<Option<String>, CredentialRefusal> {
    let giving = async {
        if let Wanted::Piece(_) = input.wanted(0).await {
            input.give(text.into_bytes(), true);
        }
        std::future::pending().await
    };
    let finished = tokio::select! {
        finished = run(command) => finished,
        never = giving => never,
    };
    let finished = finished.map_err(|_not_started| CredentialRefusal::Failed)?;
    let output = finished.stdout;
    if finished.ended_by != EndedBy::Itself || MAX_OUTPUT < output.total || !output.is_whole() {
        return Err(CredentialRefusal::NoCredential);
    }
    let is_success = finished.exit == Exit::Code(0);
    Ok(basic(&[output.head, output.tail].concat()).filter(|_| is_success))
}

/// Returns the program of git. `None` if it is absent, or if sessions could change what it runs.
fn git_blocking(env: &[(String, String)], home: &Path, untrusted: &Writable) -> Option<PathBuf> {
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str())?;
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let git = path.split(':').map(|at| Path::new(at).join("git")).find(is_program)?;

    let named = UserSettings::read_blocking(home, env).credential_files(path)?;
    let is_way = |program: &PathBuf| untrusted.way_blocking(program).is_some();
    let is_held = is_way(&git)
        || named.programs.iter().any(is_way)
        || named.files.iter().any(|file| untrusted.held_blocking(file).is_some());
    (!is_held).then_some(git)
}

/// Becomes git without the directories of sessions, if the system allows namespaces. Returns only on failure. Called by
/// `quack credential-git [--hide DIRECTORY]... -- GIT [ARGUMENT]...` before any other code in the process.
#[must_use]
pub fn become_git() -> ExitCode {
    let mut words = std::env::args_os().skip(2);
    let mut hidden = Vec::new();
    while words.next().is_some_and(|word| word == "--hide") {
        hidden.extend(words.next().map(PathBuf::from));
    }
    let git = words.next().unwrap_or_default();
    // Without namespaces, the checks of the settings decide alone.
    if let Err(error) = quackd_sandbox::confine::hide_directories(&hidden) {
        complain(&format!("cannot hide the directories of sessions: {error}"));
        return ExitCode::FAILURE;
    }
    let error = become_program(&git, words.collect(), []);
    complain(&format!("cannot start git: {error}"));
    ExitCode::FAILURE
}

fn command(
    exe: &SelfExe,
    git: &Path,
    untrusted: &Writable,
    mut env: Vec<(String, String)>,
    input: CommandInput,
) -> Command {
    let hidden = untrusted.iter().flat_map(|at| [OsString::from("--hide"), at.into()]);
    let question: [OsString; 4] = ["--".into(), git.into(), "credential".into(), "fill".into()];
    env.retain(|(name, _)| !name.starts_with("GIT_") || KEPT.contains(&name.as_str()));
    env.retain(|(name, _)| !UNASKED.iter().any(|(fixed, _)| fixed == name));
    env.extend(UNASKED.map(|(name, value)| (name.to_owned(), value.to_owned())));
    Command {
        program: exe.path().into(),
        args: [OsString::from(VERB)].into_iter().chain(hidden).chain(question).collect(),
        cwd: "/".into(),
        env,
        deadline: DEADLINE,
        grace: GRACE,
        abort_grace: GRACE,
        leave: Duration::ZERO,
        cancel: CancellationToken::new(),
        tag: "credentials-git".to_owned(),
        spill: None,
        live: None,
        flow: None,
        input: Some(input),
        terminal: None,
        limits: Limits::default(),
        group: None,
        spawn_thread: None,
    }
}

/// Returns the basic authentication (RFC 7617) with the user and password in git's output.
fn basic(output: &[u8]) -> Option<String> {
    let value = |name: &str| {
        let mut lines = output.split(|byte| *byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(name.as_bytes()));
        value.filter(|value| !value.is_empty())
    };
    let (user, password) = (value("username=")?, value("password=")?);
    Some(format!("Basic {}", STANDARD.encode([user, password].join(&b':'))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::{TestDir, write_file};
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::symlink;

    /// A home with settings that name `helper`, and the environment of git.
    fn asked(dir: &TestDir, helper: &str) -> Vec<(String, String)> {
        write_file(dir.join("home/.gitconfig"), format!("[credential]\nhelper = {helper}\n"));
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", dir.join("bin").display());
        let home = dir.join("home").display().to_string();
        vec![("PATH".to_owned(), path), ("HOME".to_owned(), home)]
    }

    #[test]
    fn a_credential_becomes_basic_authentication() {
        let output = b"protocol=https\nhost=a.example\nusername=me\npassword=p=w:d\n";
        assert_eq!(basic(output).as_deref(), Some("Basic bWU6cD13OmQ="));
        for output in ["", "username=me\n", "username=me\npassword=\n", "xusername=me\npassword=p"]
        {
            assert_eq!(basic(output.as_bytes()), None, "{output}");
        }
    }

    #[test]
    fn git_is_not_asked_if_sessions_could_change_its_settings_or_helpers() {
        let dir = TestDir::with(&["ws", "home", "bin"]);
        write_file(dir.join("bin/git"), "");
        set_permissions(dir.join("bin/git"), Permissions::from_mode(0o755)).unwrap();
        let home = dir.join("home");
        let untrusted = Writable::of_blocking([dir.join("ws")], &home);
        let is_asked =
            |helper: &str| git_blocking(&asked(&dir, helper), &home, &untrusted).is_some();
        assert!(is_asked("store") && is_asked("!/opt/helper --x") && is_asked("!bar get"));

        // A link in a directory of PATH, and a way that only the links of the disk show.
        symlink(dir.join("ws/h"), dir.join("bin/git-credential-foo")).unwrap();
        symlink(dir.join("ws/h"), dir.join("bin/bar")).unwrap();
        symlink(dir.join("ws"), home.join("proj")).unwrap();
        write_file(dir.join("ws2/helper"), "");
        let up = home.join("proj/../ws2/helper").display().to_string();
        for helper in ["foo", "!bar get", "!$HOME/proj/h", "!cd $HOME/proj && ./h", "!/a/w?/h", &up]
        {
            assert!(!is_asked(helper), "{helper}");
        }
        let in_workspace = dir.join("ws/helper").display().to_string();
        for helper in [in_workspace.clone(), format!("!sh {in_workspace}"), "~/../ws/x".to_owned()]
        {
            assert!(!is_asked(&helper), "{helper}");
        }

        for file in [&*dir.join("ws/config").display().to_string(), "~root/x", "%(prefix)/x"] {
            assert!(!is_asked(&format!("store\n[include]\npath = {file}")), "{file}");
        }
        let padding = "#\n".repeat(128 * 1024);
        assert!(!is_asked(&format!("store\n{padding}[include]\npath = ~/x")));
        let untrusted = Writable::of_blocking([dir.join("bin")], &home);
        assert_eq!(git_blocking(&asked(&dir, "store"), &home, &untrusted), None);
    }

    #[test]
    fn variables_of_git_that_name_files_are_removed_and_no_question_is_asked() {
        let env = ["GIT_DIR=/ws/.git", "GIT_ASKPASS=/x", "GIT_CONFIG_GLOBAL=/g", "HOME=/h"];
        let env = env.iter().filter_map(|one| one.split_once('='));
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let untrusted = Writable::of_blocking(["/ws".into()], Path::new("/h"));
        let exe = SelfExe::open().unwrap();
        let git = Path::new("/bin/git");
        let command = command(&exe, git, &untrusted, env, CommandInput::default());
        let words = [VERB, "--hide", "/ws", "--", "/bin/git", "credential", "fill"];
        assert_eq!(command.args, words);
        let env: Vec<_> = command.env.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(
            env,
            [
                "GIT_CONFIG_GLOBAL=/g",
                "HOME=/h",
                "GIT_ASKPASS=",
                "GIT_TERMINAL_PROMPT=0",
                "GCM_INTERACTIVE=never"
            ]
        );
    }
}
