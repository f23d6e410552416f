//! P-06: a disk that takes no more costs the request that needed it, and nothing else.
//!
//! A file-size limit stands in for the full disk: it needs no rights and takes the same way (EFBIG
//! instead of ENOSPC). The limit is a process's, so the test runs itself again under it.

#[cfg(test)]
mod tests {
    use quackd_protocol::metadata::Metadata;
    use quackd_store::{Origin, StoreError, load_blocking, save_blocking};
    use std::fs;
    use std::path::PathBuf;

    const DIRECTORY: &str = "QUACKD_TEST_DIRECTORY";

    fn metadata(name_bytes: usize) -> Metadata {
        let mut metadata = Metadata::default();
        metadata.other.insert("name".to_owned(), "x".repeat(name_bytes).into());
        metadata
    }

    #[test]
    fn a_full_disk_costs_the_request_and_leaves_both_generations() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.json");
        save_blocking(&path, &metadata(1)).unwrap();
        save_blocking(&path, &metadata(2)).unwrap();
        // As the daemon does, the child ignores SIGXFSZ; bash counts in units of 1,024 bytes.
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
        // The disk has room again, and the child's last save is there.
        assert_eq!(load_blocking(&path).unwrap().metadata, metadata(3));
    }

    #[test]
    fn under_the_limit() {
        let Some(dir) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
        let path = dir.join("metadata.json");
        for _ in 0..3 {
            let refused = save_blocking(&path, &metadata(100_000));
            assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
            let loaded = load_blocking(&path).unwrap();
            assert_eq!((loaded.metadata, loaded.origin), (metadata(2), Origin::File));
            assert!(fs::read_to_string(dir.join("metadata.json.bak")).unwrap().contains("\"x\""));
            // What was written of the new file is not in the way of the next one.
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        }
        save_blocking(&path, &metadata(3)).unwrap();
    }
}
