//! An attacker who swaps a directory and a symlink as fast as the kernel allows gains nothing, and who copies mount
//! namespaces as fast as the kernel allows makes no lookup fail.

#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use quackd_sandbox::{PathError, Root};
    use quackd_testkit::{TestDir, untested};
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    use std::io::Read as _;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    /// An attack lasts at least this long, and until something has raced.
    const ATTACK: Duration = Duration::from_secs(1);
    const PATIENCE: Duration = Duration::from_secs(60);
    const MIN_SWAPS: u64 = 1000;
    const N_MOUNTS: usize = 300;
    const MIN_COPIES: u64 = 100;

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
        let base = TestDir::with(&["ws/work", "outside"]);
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

    /// Mounts into a mount namespace of this thread, and copies it until `is_over`. Returns false if this user
    /// may not.
    fn copy_mounts(base: &Path, n_copies: &AtomicU64, is_over: &AtomicBool) -> bool {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        if unshare(CloneFlags::CLONE_NEWNS).is_err() || mount_change("/", private).is_err() {
            return false;
        }
        for n in 0..N_MOUNTS {
            let target = base.join(format!("mounts/{n}"));
            fs::create_dir_all(&target).unwrap();
            mount_bind(base.join("ws"), target).unwrap();
        }
        while !is_over.load(Ordering::Relaxed) {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            n_copies.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    #[test]
    fn a_link_is_followed_while_mount_namespaces_are_copied() {
        let base = TestDir::with(&["ws/src"]);
        fs::write(base.join("ws/file"), "inside").unwrap();
        std::os::unix::fs::symlink("../file", base.join("ws/src/up")).unwrap();
        let root = Root::open(&base.join("ws")).unwrap();

        let (is_over, n_copies) = (AtomicBool::new(false), AtomicU64::new(0));
        let (may_mount, failed) = thread::scope(|scope| {
            let copier = scope.spawn(|| copy_mounts(&base, &n_copies, &is_over));
            let start = Instant::now();
            let is_enough = || MIN_COPIES < n_copies.load(Ordering::Relaxed);
            let mut failed = None;
            while failed.is_none()
                && !copier.is_finished()
                && (start.elapsed() < ATTACK || !is_enough() && start.elapsed() < PATIENCE)
            {
                failed = root.open_file("src/up").err();
            }
            is_over.store(true, Ordering::Relaxed);
            (copier.join().unwrap(), failed)
        });
        if !may_mount {
            return untested("this user may not mount");
        }
        assert!(failed.is_none(), "{failed:?} after {n_copies:?} copies");
        assert!(MIN_COPIES < n_copies.into_inner());
    }
}
