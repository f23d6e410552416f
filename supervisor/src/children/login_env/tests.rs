//! The environment of workers and the time at which they get it, with a paused clock and fake results.

use super::*;
use crate::children::spawner::spawner;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

fn parts(variables: &[(&str, &str)], cached: Option<&str>) -> LoginEnvInputs {
    let cached = cached.map(|path| {
        let allowed = EnvAllowList::default();
        CapturedEnv::new(answer(path), "2026-01-02T03:04:05Z".into(), &allowed).unwrap()
    });
    LoginEnvInputs {
        for_pi: Vec::new(),
        login_shell: true,
        extra: vec!["DUCK".into(), "EXA_API_KEY".into()],
        variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        cached,
        cache: "/nowhere/login-environment.json".into(),
        run_dir: "/nowhere".into(),
        spawner: spawner().0,
        deaths: Rc::default(),
    }
}

/// Variables of a daemon that a service manager started.
fn bare() -> LoginEnvInputs {
    parts(&[("PATH", "/usr/bin:/bin"), ("EXA_API_KEY", "secret"), ("DUCK", "own")], None)
}

fn answer(path: &str) -> LoginEnvironment {
    let variables = [("PATH", path), ("GOPATH", "/go"), ("EXA_API_KEY", "x"), ("PAGER", "less")];
    LoginEnvironment {
        shell: "/bin/zsh".into(),
        interactive: true,
        variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        took_ms: 7,
        confined: true,
    }
}

fn asking(login: &LoginEnv) {
    login.phase.send_replace(Phase::Capturing);
}

fn path(variables: &Variables) -> &str {
    command_env::of(variables, "PATH")
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_the_first_answer_and_gets_it() {
    let login = LoginEnv::new(bare());
    asking(&login);
    let begin = Instant::now();
    let answering = async {
        sleep(SECOND).await;
        assert!(login.settle(Ok(answer("/zsh:/bin"))).is_some());
        login.phase.send_replace(Phase::Saving);
    };
    let (env, ()) = tokio::join!(login.env_for_worker(10 * SECOND), answering);
    assert_eq!(begin.elapsed(), SECOND);
    assert_eq!(path(&env), "/zsh:/bin:/usr/bin");
    let of = |name| command_env::of(&env, name);
    assert_eq!(
        (of("GOPATH"), of("DUCK"), of("PAGER"), of("EXA_API_KEY")),
        ("/go", "own", "cat", "")
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_allowed() {
    let login = LoginEnv::new(bare());
    asking(&login);
    let begin = Instant::now();
    assert_eq!(path(&login.env_for_worker(SECOND).await), "/usr/bin:/bin");
    assert_eq!(begin.elapsed(), SECOND);
    login.env_for_worker(10 * SECOND).await;
    assert_eq!(begin.elapsed(), FIRST_WORKER_TIMEOUT);
    login.env_for_worker(10 * SECOND).await;
    assert_eq!(begin.elapsed(), FIRST_WORKER_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_wait_and_is_told() {
    let login = LoginEnv::new(bare());
    asking(&login);
    let begin = Instant::now();
    let failing = async {
        sleep(SECOND).await;
        assert!(login.settle(Err(CaptureError::Failed("no shell".into()))).is_none());
        login.phase.send_replace(Phase::Idle);
    };
    let (env, ()) = tokio::join!(login.env_for_worker(10 * SECOND), failing);
    assert_eq!((begin.elapsed(), path(&env)), (SECOND, "/usr/bin:/bin"));
    let state = login.state();
    assert_eq!((state.source, state.error.as_deref()), (LoginSource::None, Some("no shell")));
}

#[tokio::test(start_paused = true)]
async fn what_a_shell_set_or_an_earlier_daemon_kept_is_used_at_once() {
    let from_shell = parts(&[("PATH", "/venv/bin"), ("SHLVL", "1")], None);
    let off = LoginEnvInputs { login_shell: false, ..parts(&[("PATH", "/bin")], Some("/kept")) };
    for (parts, expected, source) in [
        (from_shell, "/venv/bin", LoginSource::None),
        (parts(&[("PATH", "/bin")], Some("/kept:/bin")), "/kept:/bin", LoginSource::Cached),
        (off, "/bin", LoginSource::Off),
    ] {
        let login = LoginEnv::new(parts);
        asking(&login);
        let begin = Instant::now();
        let env = login.env_for_worker(10 * SECOND).await;
        assert_eq!((path(&env), begin.elapsed()), (expected, Duration::ZERO));
        assert_eq!(login.state().source, source);
    }
}

#[tokio::test]
async fn a_failure_leaves_what_is_in_use_and_the_next_answer_replaces_it() {
    let login = LoginEnv::new(parts(&[("PATH", "/bin")], Some("/kept")));
    login.settle(Err(CaptureError::Silent(Duration::from_secs(12))));
    let state = login.state();
    let expected = LoginState {
        source: LoginSource::Cached,
        refreshing: false,
        shell: Some("/bin/zsh".into()),
        interactive: Some(true),
        captured_at: Some("2026-01-02T03:04:05Z".into()),
        confined: Some(true),
        took_ms: Some(7),
        error: Some("no answer after 12s".into()),
        path_entries: vec!["/kept".into(), "/bin".into()],
    };
    assert_eq!(state, expected);

    login.settle(Ok(answer("/new")));
    let state = login.state();
    assert_eq!((state.source, state.error), (LoginSource::Fresh, None));
    assert_eq!(state.path_entries, ["/new", "/bin"]);
    assert_ne!(state.captured_at, expected.captured_at);

    let huge = LoginEnvironment { shell: "x".repeat(10_000), ..answer("/huge") };
    assert!(login.settle(Ok(huge)).is_none());
    assert_eq!(login.state().path_entries, ["/new", "/bin"]);
    assert!(login.state().error.is_some());
}

#[test]
fn workers_are_replaced_if_they_began_with_nothing_or_somebody_asked() {
    for (parts, is_requested, path, n_changes) in [
        (bare(), false, "/new", 1),
        (bare(), false, "/usr/bin:/bin", 1),
        (parts(&[("PATH", "/bin"), ("SHLVL", "1")], None), false, "/new", 0),
        (parts(&[("PATH", "/bin")], Some("/kept")), false, "/new", 0),
        (parts(&[("PATH", "/bin")], Some("/kept")), true, "/new", 1),
        (parts(&[("PATH", "/bin")], Some("/kept")), true, "/kept", 0),
    ] {
        let login = LoginEnv::new(parts);
        let before = login.version();
        login.is_requested.set(is_requested);
        login.settle(Ok(answer(path)));
        login.settle(Ok(answer(path)));
        assert_eq!(login.version() - before, n_changes, "{path} {is_requested}");
    }
    let login = LoginEnv::new(bare());
    let before = login.version();
    login.settle(Err(CaptureError::Silent(Duration::from_secs(12))));
    assert_eq!(login.version(), before);
}

#[test]
fn what_is_kept_has_no_key_and_no_name_that_is_not_on_the_list() {
    let login = LoginEnv::new(bare());
    let kept = login.settle(Ok(answer("/zsh"))).unwrap();
    let names: Vec<_> = kept.environment.variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["GOPATH", "PATH"]);
}

#[test]
fn a_login_shell_is_asked_for_the_list_and_given_no_key() {
    let request = LoginEnv::new(bare()).request(&["/ws".into()]);
    assert!(["PATH", "DUCK"].iter().all(|name| request.names.iter().any(|there| there == name)));
    assert!(!request.names.iter().any(|name| name.contains("EXA")));
    let names: Vec<_> = request.base.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["PATH", "TERM"]);
}

/// The main thread is gone here, so the capture fails. Every waiting caller must get the result.
#[actix::test]
async fn asking_again_ends_with_the_truth_and_asks_once() {
    let login = Rc::new(LoginEnv::new(bare()));
    login.set_writable(WritableSource(Box::new(|| Box::pin(async { Some(Vec::new()) }))));
    let (one, other) = tokio::join!(login.refresh(), login.refresh());
    assert_eq!(one, other);
    assert!(!one.refreshing);
    assert_eq!(
        one.error.as_deref(),
        Some("cannot start a process: the daemon is stopping or overloaded")
    );
    let off = Rc::new(LoginEnv::new(LoginEnvInputs { login_shell: false, ..bare() }));
    assert_eq!(off.refresh().await.source, LoginSource::Off);
}

#[test]
fn the_socket_of_the_agent_is_that_of_the_daemon_or_else_of_the_login_shell_and_no_command_gets_it()
{
    let mut shell = answer("/bin");
    shell.variables.push((SSH_AGENT_VARIABLE.to_owned(), "/run/shell".to_owned()));
    for (own, expected) in [(Some("/run/own"), "/run/own"), (None, "/run/shell")] {
        let login = LoginEnv::new(LoginEnvInputs {
            variables: own.map(|own| (SSH_AGENT_VARIABLE.into(), own.into())).into_iter().collect(),
            ..bare()
        });
        login.settle(Ok(answer("/bin"))).unwrap();
        assert_eq!(login.agent_socket().as_deref(), own);
        let before = login.version();
        let kept = login.settle(Ok(shell.clone())).unwrap();
        assert_eq!(login.agent_socket().as_deref(), Some(expected));
        assert_eq!(login.version() != before, own.is_none(), "workers without it are replaced");
        let known = login.known.borrow();
        for variables in [&kept.environment.variables, &known.merged, &known.for_pi] {
            assert_eq!(command_env::of(variables, SSH_AGENT_VARIABLE), "");
        }
    }
}
