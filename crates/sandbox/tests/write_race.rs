//! An attacker who swaps a directory and a symlink while files are written, and writers who race for one
//! file.

#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_sandbox::{PathError, Purpose, Root, WriteError};
    use quackd_testkit::TestDir;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    const N_WRITES: usize = 300;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Writes under attack, until enough writes succeeded and at least one was refused. Returns both numbers.
    fn write_under_attack(root: &Root) -> (usize, usize) {
        let (mut written, mut refused) = (0, 0);
        let begin = Instant::now();
        while (written < N_WRITES || refused == 0) && begin.elapsed() < PATIENCE {
            let n = written + refused;
            // New files, replaced files and new directories.
            let argument = match n % 3 {
                0 => format!("work/new-{n}"),
                1 => "work/file".to_owned(),
                _ => format!("work/dir-{n}/file"),
            };
            let done = root
                .open_target(&argument, Purpose::Write, &|| false)
                .and_then(|mut target| target.replace(b"written", &|| false));
            match done {
                Ok(_) => written += 1,
                Err(WriteError::Path(PathError::Escapes) | WriteError::Changed) => refused += 1,
                Err(error) => panic!("unexpected refusal: {error:?}"),
            }
        }
        (written, refused)
    }

    fn listing(directory: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let mut listing: Vec<_> = entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read_to_string(entry.path()).unwrap_or_default())
            })
            .collect();
        listing.sort();
        listing
    }

    fn attack(link_target: &str) {
        let base = TestDir::with(&["ws/work", "outside"]);
        fs::write(base.join("ws/work/file"), "inside").unwrap();
        fs::write(base.join("outside/file"), "secret").unwrap();
        let target = link_target.replace("BASE", base.to_str().unwrap());
        std::os::unix::fs::symlink(target, base.join("ws/link")).unwrap();
        let root = Root::open(&base.join("ws")).unwrap();

        let attack_over = AtomicBool::new(false);
        let ((written, refused), n_swaps) = thread::scope(|scope| {
            let attacker = scope.spawn(|| {
                let mut n_swaps = 0_u64;
                while !attack_over.load(Ordering::Relaxed) {
                    let (a, b) = (base.join("ws/work"), base.join("ws/link"));
                    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
                    n_swaps += 1;
                }
                n_swaps
            });
            let writer = scope.spawn(|| write_under_attack(&root));
            let tally = writer.join();
            attack_over.store(true, Ordering::Relaxed);
            (tally.unwrap(), attacker.join().unwrap())
        });
        assert_eq!(listing(&base.join("outside")), [("file".to_owned(), "secret".to_owned())]);
        // Without these the test would also pass when nothing raced.
        assert!(100 < n_swaps, "only {n_swaps} swaps");
        assert!(N_WRITES <= written && 0 < refused, "{written} written, {refused} refused");
    }

    #[test]
    fn swapping_a_directory_and_a_relative_link_writes_nothing_outside() {
        attack("../outside");
    }

    #[test]
    fn swapping_a_directory_and_an_absolute_link_writes_nothing_outside() {
        attack("BASE/outside");
    }

    #[test]
    fn writers_who_race_for_one_file_lose_nothing() {
        const N_WRITERS: usize = 4;
        const N_ROUNDS: usize = 100;
        for n_names in [1, 2] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("file"), "").unwrap();
            if n_names == 2 {
                fs::hard_link(dir.path().join("file"), dir.path().join("second")).unwrap();
            }
            thread::scope(|scope| {
                for writer in 0..N_WRITERS {
                    let root = Root::open(dir.path()).unwrap();
                    scope.spawn(move || {
                        for round in 0..N_ROUNDS {
                            // On a slow disk the others may hold the lock for longer than its limit.
                            let mut target = loop {
                                match root.open_target("file", Purpose::Edit, &|| false) {
                                    Err(WriteError::Locked) => (),
                                    opened => break opened.unwrap(),
                                }
                            };
                            let mut content = target.read(1_000_000).unwrap();
                            content.extend(format!("{writer} {round}\n").bytes());
                            target.replace(&content, &|| false).unwrap();
                        }
                    });
                }
            });
            let text = fs::read_to_string(dir.path().join("file")).unwrap();
            for writer in 0..N_WRITERS {
                let prefix = format!("{writer} ");
                let rounds = text.lines().filter_map(|line| line.strip_prefix(&prefix));
                let expected: Vec<String> = (0..N_ROUNDS).map(|round| round.to_string()).collect();
                assert_eq!(rounds.collect::<Vec<_>>(), expected, "writer {writer}");
            }
        }
    }
}
