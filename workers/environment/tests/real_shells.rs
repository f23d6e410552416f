//! Tests with real shells and typical start files: the captured variables, the duration, and that no process is left.
//!
//! The tests run one at a time: a shell that runs alone also kills orphans of unknown origin, which would be other
//! tests' children.

#![cfg(target_os = "linux")]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this file is a test target"
)]

use quackd_environment_worker::{Account, CaptureError, capture};
use quackd_process::{Role, harden};
use quackd_protocol::environment::{CAPTURE_DEADLINE, CaptureRequest, LoginEnvironment};
use quackd_testkit::{Turn, wait_until_async, write_file};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Limit for everything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sets up this process like the environment worker, and locks out other tests.
async fn alone() -> Turn {
    quackd_testkit::alone(|| harden(Role::Worker).unwrap()).await
}

/// A user with a separate home.
struct Person {
    home: TempDir,
    run: TempDir,
    account: Account,
    deadline: Duration,
}

impl Person {
    /// Creates a user whose shell reads `files` when it starts.
    fn with(shell: &str, files: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            write_file(home.path().join(name), text);
        }
        let account =
            Account { name: "duck".into(), home: home.path().to_owned(), shell: shell.into() };
        let run = tempfile::tempdir().unwrap();
        Self { home, run, account, deadline: CAPTURE_DEADLINE }
    }

    fn bash(profile: &str) -> Self {
        Self::with("/bin/bash", &[(".bash_profile", profile)])
    }

    /// Too short for a profile that hangs.
    fn impatient(mut self) -> Self {
        self.deadline = Duration::from_millis(900);
        self
    }

    async fn capture(&self) -> Result<LoginEnvironment, CaptureError> {
        let request = CaptureRequest {
            run_dir: self.run.path().display().to_string(),
            base: [("PATH", "/usr/bin:/bin"), ("TERM", "dumb"), ("LANG", "C.UTF-8")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            names: ["PATH", "DUCK", "HOME", "SHELL"].map(str::to_owned).into(),
            prefixes: vec!["LC_".to_owned()],
            deadline_ms: u64::try_from(self.deadline.as_millis()).unwrap(),
            untrusted: Vec::new(),
        };
        let captured = capture(&request, Some(&self.account));
        let captured = tokio::time::timeout(PATIENCE, captured).await.unwrap();
        let left: Vec<_> = fs::read_dir(self.run.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        captured
    }

    /// Returns the process ids that the start files recorded, one per line.
    fn noted(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.home.path().join("pids")).unwrap();
        text.lines().map(|pid| Path::new("/proc").join(pid.trim())).collect()
    }

    fn n_noted(&self) -> usize {
        fs::read_to_string(self.home.path().join("pids")).unwrap_or_default().lines().count()
    }

    #[track_caller]
    fn assert_gone(&self, n: usize) {
        let noted = self.noted();
        assert_eq!(noted.len(), n);
        let left: Vec<_> = noted.iter().filter(|process| process.exists()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[track_caller]
fn value<'a>(environment: &'a LoginEnvironment, name: &str) -> Option<&'a str> {
    let found = environment.variables.iter().find(|(there, _)| there == name);
    found.map(|(_, value)| value.as_str())
}

fn text(result: Result<LoginEnvironment, CaptureError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn the_environment_is_what_the_profile_makes_it_and_only_what_was_asked_for() {
    let _turn = alone().await;
    let person = Person::bash(
        "echo noise; echo more >&2; set -o noclobber; env() { echo tricked; }\n\
         alias echo=false\n\
         export PATH=\"$HOME/tools:$PATH\" LC_ALL=C OPENAI_API_KEY=secret\n\
         export DUCK=$'two\\nlines\\nPATH=/not\\n'\n\
         [ \"$QUACKD_CALL\" = login-environment ] || exit\n",
    );
    let environment = person.capture().await.unwrap();
    let home = person.home.path().display().to_string();
    assert_eq!((environment.shell.as_str(), environment.interactive), ("/bin/bash", true));
    let names: Vec<&str> = environment.variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["DUCK", "HOME", "LC_ALL", "PATH", "SHELL"]);
    assert!(value(&environment, "PATH").unwrap().starts_with(&format!("{home}/tools:")));
    assert_eq!(value(&environment, "DUCK"), Some("two\nlines\nPATH=/not\n"));
    assert_eq!(value(&environment, "HOME"), Some(home.as_str()));
    assert_eq!(value(&environment, "SHELL"), Some("/bin/bash"));
}

#[tokio::test]
async fn a_profile_that_fails_without_a_terminal_is_read_as_a_login_shells() {
    let _turn = alone().await;
    for failure in ["exit 3", "exec sleep 1000", "exec bash"] {
        let profile = format!("export DUCK=$-\ncase $- in *i*) {failure};; esac\n");
        let mut person = Person { deadline: Duration::from_secs(3), ..Person::bash(&profile) };
        let environment = loop {
            match person.capture().await {
                Ok(environment) => break environment,
                // A busy machine may need more.
                Err(error) => assert!(person.deadline < PATIENCE / 4, "{error}"),
            }
            person.deadline *= 4;
        };
        assert!(!environment.interactive);
        assert!(!value(&environment, "DUCK").unwrap().contains('i'), "{failure}");
    }
}

#[tokio::test]
async fn ten_megabytes_of_noise_are_read_past() {
    let _turn = alone().await;
    let person = Person::bash(
        "head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2\n\
         exec >/dev/null 2>&1; export DUCK=quack\n",
    );
    let environment = person.capture().await.unwrap();
    assert_eq!((value(&environment, "DUCK"), environment.interactive), (Some("quack"), true));
}

#[tokio::test]
async fn a_profile_that_never_ends_is_ended_with_all_that_it_started() {
    let _turn = alone().await;
    for hang in
        ["sleep 1000", "exec sleep 1000", "exec yes", "while :; do :; done", "exec cat /dev/zero"]
    {
        let mut person = Person::bash(&format!(
            "trap '' TERM INT HUP; setsid sleep 1000 & echo $! >>~/pids; echo $$ >>~/pids; {hang}\n"
        ))
        .impatient();
        let mut error = text(person.capture().await);
        while person.n_noted() < 2 && person.deadline < PATIENCE / 4 {
            // A busy machine may need more.
            person.deadline *= 4;
            error = text(person.capture().await);
        }
        assert!(error.starts_with("`/bin/bash -l -i -c` was ended after "), "{error}");
        assert!(error.contains("; `/bin/bash -l -c` was ended after "), "{error}");
        // The second attempt may have had no time to record its processes.
        let n_noted = person.n_noted();
        assert!(2 <= n_noted, "{n_noted}");
        person.assert_gone(n_noted);
    }
}

#[tokio::test]
async fn what_a_profile_leaves_in_the_background_is_ended() {
    let _turn = alone().await;
    let person = Person::bash(
        "(setsid sleep 1000 & echo $! >>~/pids); nohup sleep 1000 & echo $! >>~/pids\n\
         (while :; do echo noise; sleep 0.01; done) & echo $! >>~/pids\nexport DUCK=quack\n",
    );
    let environment = person.capture().await.unwrap();
    assert_eq!(value(&environment, "DUCK"), Some("quack"));
    person.assert_gone(3);
}

#[tokio::test]
async fn a_shell_that_has_answered_is_not_waited_for() {
    let _turn = alone().await;
    for trap in ["exit 1", "kill -9 $$", "trap \"\" TERM; sleep 1000"] {
        let person = Person::bash(&format!("export DUCK=quack; trap '{trap}' EXIT\n"));
        // A busy machine may need several attempts. A wait for the trap makes each of them long.
        let mut n_attempts = 0;
        let environment = loop {
            let begin = Instant::now();
            let environment = person.capture().await.unwrap();
            if begin.elapsed() < CAPTURE_DEADLINE / 2 {
                break environment;
            }
            n_attempts += 1;
            assert!(n_attempts < 5, "{trap}");
        };
        assert_eq!((value(&environment, "DUCK"), environment.interactive), (Some("quack"), true));
    }
}

#[tokio::test]
async fn a_profile_that_exits_is_told_so() {
    let _turn = alone().await;
    let error = text(Person::bash("exit 5\n").capture().await);
    assert_eq!(
        error,
        "`/bin/bash -l -i -c` ended (exit code 5) without telling its environment; \
         `/bin/bash -l -c` ended (exit code 5) without telling its environment"
    );
}

#[tokio::test]
async fn an_environment_without_measure_is_refused() {
    let _turn = alone().await;
    let many = "for i in $(seq 5000); do export V$i=; done\n";
    let large =
        "x=$(head -c 100000 /dev/zero | tr '\\0' x); for i in $(seq 12); do export V$i=$x; done\n";
    let wanted = "x=$(head -c 60000 /dev/zero | tr '\\0' x); export LC_A=$x LC_B=$x LC_C=$x\n";
    for (profile, what) in [
        (many, "an environment of more than 4096 variables"),
        (large, "an environment of more than 1048576 bytes"),
        (wanted, "variables of more than 131072 bytes"),
    ] {
        let error = text(Person::bash(profile).capture().await);
        let expected = format!("`/bin/bash -l -i -c` told {what}; `/bin/bash -l -c` told {what}");
        assert_eq!(error, expected);
    }
}

/// A value that alone would make every command fail is omitted. The rest stays.
#[tokio::test]
async fn a_value_that_no_command_could_take_is_left_out() {
    let _turn = alone().await;
    let profile = "DUCK=$(head -c 70000 /dev/zero | tr '\\0' x); export DUCK LC_ALL=C\n";
    let environment = Person::bash(profile).capture().await.unwrap();
    assert_eq!((value(&environment, "DUCK"), value(&environment, "LC_ALL")), (None, Some("C")));
}

/// Skips shells that are not installed.
#[tokio::test]
async fn every_shell_that_is_here_answers() {
    let _turn = alone().await;
    let path = std::env::var_os("PATH").unwrap();
    let posix = "set -o noclobber; echo noise; DUCK=quack; export DUCK\n";
    let mut n_asked = 0;
    for (name, file, text, interactive) in [
        ("bash", ".profile", posix, true),
        ("sh", ".profile", posix, false),
        ("zsh", ".zshrc", "setopt noclobber; echo noise; export DUCK=quack\n", true),
        ("fish", ".config/fish/config.fish", "echo noise; set -x DUCK quack\n", true),
        ("mksh", ".profile", posix, true),
        ("tcsh", ".cshrc", "set noclobber; echo noise; setenv DUCK quack\n", false),
    ] {
        let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|it| it.exists());
        let Some(shell) = found else { continue };
        let person = Person::with(&shell.display().to_string(), &[(file, text)]);
        let environment = person.capture().await.unwrap();
        assert_eq!(value(&environment, "DUCK"), Some("quack"), "{name}");
        assert_eq!(environment.interactive, interactive, "{name}");
        n_asked += 1;
    }
    assert!(2 <= n_asked);
}

#[tokio::test]
async fn a_request_that_is_dropped_leaves_nothing() {
    let _turn = alone().await;
    let person =
        Person::bash("setsid sleep 1000 & echo $! >>~/pids; echo $$ >>~/pids; sleep 1000\n");
    tokio::select! {
        captured = person.capture() => panic!("{captured:?}"),
        () = wait_until_async("the profile", || person.n_noted() == 2) => {}
    }
    let noted = person.noted();
    wait_until_async("its end", || !noted.iter().any(|process| process.exists())).await;
    assert_eq!(fs::read_dir(person.run.path()).unwrap().count(), 0);
}
