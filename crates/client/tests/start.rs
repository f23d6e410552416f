//! Tests the start of a daemon with real processes. This program is the test. With the daemon's arguments it is a small
//! daemon whose behavior `BEHAVIOUR` selects.

fn main() -> std::process::ExitCode {
    #[cfg(test)]
    return tests::main();
    #[cfg(not(test))]
    std::process::ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use quackd_client::{Client, StartError, Started, ensure_daemon};
    use quackd_home::Home;
    use quackd_process::{Exit, SelfExe};
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::process::{Command, ExitCode, Output};
    use std::time::Duration;

    /// Longest lifetime of a daemon of this test, if its test is killed.
    const LIFE: Duration = Duration::from_secs(20);

    const SCENARIOS: [(&str, &str); 5] = [
        ("a_daemon_is_started_once", "serve"),
        ("many_starters_end_with_one_daemon", "serve"),
        ("a_daemon_that_ends_is_told_with_its_last_words", "fail"),
        ("a_daemon_that_lets_go_of_the_lock_is_succeeded", "serve"),
        ("the_state_directory_must_not_depend_on_where_we_are", "serve"),
    ];

    pub(super) fn main() -> ExitCode {
        let args: Vec<String> = std::env::args().skip(1).collect();
        match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["daemon", "--background"] => return daemon(),
            ["scenario", name] => play(name),
            // Arguments that a test runner passes to a test program.
            ["--list", .., "--ignored"] => {}
            ["--list", ..] => {
                for (name, _) in SCENARIOS {
                    writeln!(std::io::stdout(), "{name}: test").unwrap();
                }
            }
            ref words => {
                // As in any test program, names select tests and options are ignored.
                let chosen: Vec<&&str> = words.iter().filter(|w| !w.starts_with('-')).collect();
                let is_chosen = |name: &str| {
                    chosen.is_empty() || chosen.iter().any(|word| name.contains(**word))
                };
                SCENARIOS.into_iter().filter(|(name, _)| is_chosen(name)).for_each(check);
            }
        }
        ExitCode::SUCCESS
    }

    fn check((name, behaviour): (&str, &str)) {
        let output = scenario(name, behaviour);
        assert!(output.status.success(), "{name}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Each scenario is a separate process, because the environment is inherited by the daemons that it starts.
    #[expect(clippy::disallowed_methods, reason = "the test starts itself")]
    fn scenario(name: &str, behaviour: &str) -> Output {
        let dir = tempfile::tempdir().unwrap();
        let state = if name.starts_with("the_state_directory") {
            Path::new("relative")
        } else {
            dir.path()
        };
        Command::new(std::env::current_exe().unwrap())
            .args(["scenario", name])
            .env("RUBBER_DUCK_APP_SUPPORT", state)
            .env("BEHAVIOUR", behaviour)
            .current_dir(dir.path())
            .output()
            .unwrap()
    }

    #[tokio::main(flavor = "current_thread")]
    async fn play(name: &str) {
        let home = Home::from_process_env_blocking().unwrap();
        let exe = SelfExe::open().unwrap();
        match name {
            "a_daemon_is_started_once" => {
                let first = ensure_daemon(&home, &exe).await.unwrap();
                assert!(matches!(first, Started::Started { .. }), "{first:?}");
                assert_eq!(ensure_daemon(&home, &exe).await.unwrap(), Started::AlreadyRunning);
                assert_eq!(starts(&home), 1);
            }
            "many_starters_end_with_one_daemon" => {
                let starters = (0..8).map(|_| ensure_daemon(&home, &exe));
                for started in join_all(starters).await {
                    started.unwrap();
                }
                Client::connect(&home.socket().path, LIFE).await.unwrap();
            }
            "a_daemon_that_ends_is_told_with_its_last_words" => {
                let error = ensure_daemon(&home, &exe).await.unwrap_err();
                let StartError::Exited { exit, stderr, .. } = &error else { panic!("{error}") };
                assert_eq!((*exit, stderr.as_str()), (Exit::Code(3), "no room for a daemon\n"));
            }
            "a_daemon_that_lets_go_of_the_lock_is_succeeded" => {
                let draining = File::create(home.lock_file()).unwrap();
                draining.lock().unwrap();
                let drained = async {
                    // The first daemon has found the lock held.
                    let started = async {
                        while starts(&home) == 0 {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    };
                    tokio::time::timeout(Duration::from_secs(60), started).await.unwrap();
                    drop(draining);
                };
                let (started, ()) = tokio::join!(ensure_daemon(&home, &exe), drained);
                assert!(matches!(started.unwrap(), Started::Started { .. }));
                assert!(1 < starts(&home));
            }
            _ => {
                let error = ensure_daemon(&home, &exe).await.unwrap_err();
                assert!(matches!(error, StartError::RelativeStateDirectory), "{error}");
            }
        }
        drop(fs::write(home.dir().join("over"), ""));
    }

    async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
        let mut futures: Vec<_> = futures.map(Box::pin).collect();
        let mut results = Vec::new();
        std::future::poll_fn(|cx| {
            futures.retain_mut(|future| match future.as_mut().poll(cx) {
                std::task::Poll::Ready(result) => {
                    results.push(result);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        results
    }

    /// Returns the number of started daemons, including those that did not get the lock.
    fn starts(home: &Home) -> usize {
        fs::read_to_string(home.log_file()).unwrap_or_default().lines().count()
    }

    fn daemon() -> ExitCode {
        if std::env::var("BEHAVIOUR").unwrap() == "fail" {
            writeln!(std::io::stderr(), "no room for a daemon").unwrap();
            return ExitCode::from(3);
        }
        let home = Home::from_process_env_blocking().unwrap();
        let lock = File::create(home.lock_file()).unwrap();
        let locked = lock.try_lock();
        // Afterwards: the scenario lets the lock go when it reads this.
        let mut log = File::options().create(true).append(true).open(home.log_file()).unwrap();
        writeln!(log, "started").unwrap();
        if locked.is_err() {
            return ExitCode::SUCCESS;
        }
        let _listener = UnixListener::bind(home.socket().path).unwrap();
        // Exits with its test: the scenario is over, or its directory was deleted.
        let begun = std::time::Instant::now();
        while begun.elapsed() < LIFE && home.dir().exists() && !home.dir().join("over").exists() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        ExitCode::SUCCESS
    }
}
