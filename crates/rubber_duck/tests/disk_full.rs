//! P-06: a full disk fails the request that needs space, and nothing else.
//!
//! A file-size limit replaces the full disk. It needs no privileges and takes the same code path, with EFBIG
//! instead of ENOSPC. The limit applies to a process, so the test runs itself again under it.

#[cfg(test)]
mod tests {
    use quackd_rubber_duck::{Files, Paths, open_blocking};
    use quackd_store::{Origin, Snapshot, StoreError};
    use serde_json::Map;
    use std::fs;
    use std::path::{Path, PathBuf};

    const DIRECTORY: &str = "QUACKD_TEST_DIRECTORY";
    const BIG: usize = 100_000;

    /// Returns a snapshot whose files exceed empty ones by these sizes.
    fn snapshot(metadata_bytes: usize, state_bytes: usize) -> Snapshot {
        let other = |n: usize| Map::from_iter([("name".to_owned(), "x".repeat(n).into())]);
        let mut snapshot = Snapshot::default();
        std::sync::Arc::make_mut(&mut snapshot.metadata).other = other(metadata_bytes);
        std::sync::Arc::make_mut(&mut snapshot.state).other = other(state_bytes);
        snapshot
    }

    fn open(dir: &Path) -> Files {
        open_blocking(paths(dir)).files.unwrap()
    }

    fn paths(dir: &Path) -> Paths {
        Paths { metadata: dir.join("metadata.json"), state: dir.join("quackd-state.json") }
    }

    fn on_disk(dir: &Path) -> (Snapshot, [Origin; 2]) {
        let opened = open_blocking(paths(dir));
        (opened.snapshot, [opened.metadata.unwrap().0, opened.state.unwrap().0])
    }

    #[test]
    fn a_full_disk_costs_the_request_and_leaves_both_generations() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = open(dir.path());
        files.save_blocking(&snapshot(1, 1)).unwrap();
        files.save_blocking(&snapshot(2, 2)).unwrap();
        // The child ignores SIGXFSZ, like the daemon. bash counts the limit in units of 1,024 bytes.
        let script = r#"trap '' XFSZ; ulimit -f 1; exec "$0" --exact tests::under_the_limit"#;
        #[expect(clippy::disallowed_methods, reason = "the limit holds for a whole process")]
        let child = std::process::Command::new("bash")
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap())
            .env(DIRECTORY, dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && text.contains("1 passed"), "{child:?}");
        // The disk has space again, and the child's last save is intact.
        assert_eq!(on_disk(dir.path()).0, snapshot(3, 3));
    }

    #[test]
    fn under_the_limit() {
        let Some(dir) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
        let mut files = open(&dir);
        for too_big in [snapshot(BIG, 3), snapshot(3, BIG), snapshot(BIG, BIG)] {
            let refused = files.save_blocking(&too_big);
            assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
            assert_eq!(on_disk(&dir), (snapshot(2, 2), [Origin::File, Origin::File]));
            for backup in ["metadata.json.bak", "quackd-state.json.bak"] {
                assert!(fs::read_to_string(dir.join(backup)).unwrap().contains("\"x\""));
            }
            // The incomplete new files were removed.
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 4);
        }
        files.save_blocking(&snapshot(3, 3)).unwrap();
    }
}
