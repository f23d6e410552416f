//! The other programs: finds them, starts them and captures their output.

use quackd_testkit::untested;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

/// An installed program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The first two numbers of its version.
    pub(crate) version: (u32, u32),
}

/// Exit code and output of a program.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// ripgrep, if it is installed.
pub(crate) fn rg() -> Option<&'static Program> {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    PROGRAM.get_or_init(|| find("rg", std::env::var_os("QUACKD_DIFF_RG"))).as_ref()
}

/// GNU grep. Other greps are not used as oracles.
pub(crate) fn grep() -> Option<&'static Program> {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    PROGRAM.get_or_init(|| find("grep", None)).as_ref()
}

pub(crate) fn git() -> Option<&'static Program> {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    PROGRAM.get_or_init(|| find("git", None)).as_ref()
}

pub(crate) fn perl() -> Option<&'static Program> {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    PROGRAM.get_or_init(|| find("perl", None)).as_ref()
}

fn find(name: &str, given: Option<OsString>) -> Option<Program> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file());
    let found = given.map(PathBuf::from).or(on_path).and_then(identify);
    let is_wanted = found.is_some() && (name != "grep" || is_gnu(found.as_ref()));
    if is_wanted {
        return found;
    }
    untested(&format!("differential: nothing was compared with {name}, which is missing"));
    None
}

fn is_gnu(program: Option<&Program>) -> bool {
    program.is_some_and(|program| {
        let said = run(program, Path::new("/"), &["--version".into()]);
        String::from_utf8_lossy(&said.stdout).contains("GNU grep")
    })
}

fn identify(path: PathBuf) -> Option<Program> {
    let program = Program { path, version: (0, 0) };
    let said = run(&program, Path::new("/"), &["--version".into()]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let number = text.split(|c: char| !c.is_ascii_digit() && c != '.').find(|w| w.contains('.'))?;
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    let version = (parts.next()?, parts.next()?);
    Some(Program { version, ..program })
}

/// Runs a program in `dir` to its end, without the user's settings for it.
pub(crate) fn run(program: &Program, dir: &Path, args: &[OsString]) -> Said {
    let output = quackd_testkit::program(&program.path)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .env("LC_ALL", "C.UTF-8")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("RIPGREP_CONFIG_PATH")
        .env_remove("GREP_COLORS")
        .env_remove("GREP_OPTIONS")
        .env_remove("POSIXLY_CORRECT")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("PERL_UNICODE")
        .env_remove("PERL5OPT")
        .output()
        .expect("start a program");
    Said { code: output.status.code(), stdout: output.stdout, stderr: output.stderr }
}

/// Formats the command as typed in a shell.
pub(crate) fn command_line(program: &Program, args: &[OsString]) -> String {
    let mut line = program.path.display().to_string();
    for arg in args {
        line.push(' ');
        let bytes = arg.as_bytes();
        let is_plain = !bytes.is_empty()
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_./=".contains(b));
        if is_plain {
            line.push_str(&String::from_utf8_lossy(bytes));
        } else {
            line.push_str(&format!("$'{}'", bytes.escape_ascii()));
        }
    }
    line
}
