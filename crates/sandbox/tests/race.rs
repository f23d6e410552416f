//! An attacker who swaps a directory and a symlink as fast as the kernel allows gains nothing.

#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_sandbox::{PathError, Root};
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::io::Read as _;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    /// An attack lasts at least this long, and until something has raced.
    const ATTACK: Duration = Duration::from_secs(1);
    const PATIENCE: Duration = Duration::from_secs(60);
    const MIN_SWAPS: u64 = 1000;

    /// Results of the reader in one attack.
    #[derive(Debug, Default)]
    struct Tally {
        inside: u64,
        refused: u64,
    }

    /// Reads `argument` as long as the attack lasts. Panics on the first leak.
    fn read_under_attack(root: &Root, argument: &str, n_swaps: &AtomicU64) -> Tally {
        let mut tally = Tally::default();
        let start = Instant::now();
        let has_raced = |tally: &Tally| {
            0 < tally.inside && 0 < tally.refused && MIN_SWAPS < n_swaps.load(Ordering::Relaxed)
        };
        while start.elapsed() < ATTACK || !has_raced(&tally) && start.elapsed() < PATIENCE {
            match root.open_file(argument) {
                Ok(mut open) => {
                    let mut text = String::new();
                    open.file.read_to_string(&mut text).unwrap();
                    assert_eq!(text, "inside", "leaked through {argument}");
                    tally.inside += 1;
                }
                Err(PathError::Escapes | PathError::NotFound) => tally.refused += 1,
                Err(PathError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tally.refused += 1;
                }
                Err(error) => panic!("unexpected refusal: {error:?}"),
            }
            let walked = root.open_relative(Path::new("work/file"));
            if let Ok(mut file) = walked {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                assert_eq!(text, "inside", "leaked through the walk");
            }
        }
        tally
    }

    fn attack(link_target: &str) {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(base.join("ws/work")).unwrap();
        fs::create_dir(base.join("outside")).unwrap();
        fs::write(base.join("ws/work/file"), "inside").unwrap();
        fs::write(base.join("outside/file"), "secret").unwrap();
        let target = link_target.replace("BASE", base.to_str().unwrap());
        std::os::unix::fs::symlink(target, base.join("ws/link")).unwrap();
        let root = Root::open(&base.join("ws")).unwrap();

        let (attack_over, n_swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let tally = thread::scope(|scope| {
            scope.spawn(|| {
                while !attack_over.load(Ordering::Relaxed) {
                    let (a, b) = (base.join("ws/work"), base.join("ws/link"));
                    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
                    n_swaps.fetch_add(1, Ordering::Relaxed);
                }
            });
            let reader = scope.spawn(|| read_under_attack(&root, "work/file", &n_swaps));
            let tally = reader.join();
            attack_over.store(true, Ordering::Relaxed);
            tally.unwrap()
        });
        // Without these the test would also pass when nothing raced.
        let n_swaps = n_swaps.into_inner();
        assert!(MIN_SWAPS < n_swaps, "only {n_swaps} swaps");
        assert!(0 < tally.inside && 0 < tally.refused, "{tally:?} in {n_swaps} swaps");
    }

    #[test]
    fn swapping_a_directory_and_a_relative_link_leaks_nothing() {
        attack("../outside");
    }

    #[test]
    fn swapping_a_directory_and_an_absolute_link_leaks_nothing() {
        attack("BASE/outside");
    }
}
