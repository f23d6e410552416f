//! P-11: whatever stands where the metadata should be, the loader answers, sets it aside and gives
//! what can be recovered.

#[cfg(test)]
mod tests {
    use quackd_protocol::limits::MAX_METADATA_BYTES;
    use quackd_protocol::metadata::{Metadata, Session, Workspace};
    use quackd_store::{Loaded, Origin, StoreError, load_blocking, save_blocking};
    use serde_json::{Map, Value, json};
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A state directory with two generations on disk.
    struct State {
        _guard: tempfile::TempDir,
        path: PathBuf,
        backup: PathBuf,
        /// Bytes of the two generations.
        current: Vec<u8>,
        previous: Vec<u8>,
    }

    fn metadata(name: &str) -> Metadata {
        let other = |value: Value| Map::from_iter([("unknown".to_owned(), value)]);
        let time = "2026-01-02T03:04:05Z".to_owned();
        let workspace = Workspace {
            id: "w".into(),
            path: "/home/ü".to_owned(),
            created_at: time.clone(),
            last_active_session_id: Some("s".into()),
            other: other(json!([1, "two"])),
        };
        let session = Session {
            id: "s".into(),
            workspace_id: "w".into(),
            name: name.to_owned(),
            pi_session_file: String::new(),
            created_at: time.clone(),
            last_active_at: time,
            is_voice_active: false,
            other: other(json!({"deep": null})),
        };
        Metadata {
            workspaces: vec![workspace],
            sessions: vec![session],
            active_voice_session_id: Some("s".into()),
            other: other(json!(1.5)),
            ..Metadata::default()
        }
    }

    fn state() -> State {
        // Thousands of fsyncs: in memory where there is such a place.
        let in_memory = tempfile::tempdir_in("/dev/shm");
        let guard = in_memory.or_else(|_| tempfile::tempdir()).unwrap();
        let path = guard.path().join("metadata.json");
        let backup = guard.path().join("metadata.json.bak");
        save_blocking(&path, &metadata("previous")).unwrap();
        save_blocking(&path, &metadata("current")).unwrap();
        let (current, previous) = (fs::read(&path).unwrap(), fs::read(&backup).unwrap());
        State { _guard: guard, path, backup, current, previous }
    }

    impl State {
        /// Back to the beginning, with `bytes` as the file. Cheaper than two more durable saves.
        fn reset(&self, bytes: &[u8]) {
            fs::remove_file(self.aside(1)).ok();
            fs::write(&self.path, bytes).unwrap();
            fs::write(&self.backup, &self.previous).unwrap();
        }

        fn aside(&self, n: u32) -> PathBuf {
            self.path.with_file_name(format!("metadata.json.corrupt-{n}"))
        }

        /// The file is bad: it must be set aside, and the generation before it must be given.
        fn assert_recovers(&self, what: &str) {
            let Loaded { metadata: got, origin, duplicates } = load_blocking(&self.path).unwrap();
            assert_eq!((got, duplicates), (metadata("previous"), Vec::new()), "{what}");
            let Origin::Backup { quarantined, reason, saved_at } = origin else {
                panic!("{what}: {origin:?}");
            };
            assert_eq!(quarantined, Some(self.aside(1)), "{what}");
            assert!(!reason.is_empty() && saved_at.is_some(), "{what}");
            assert!(fs::symlink_metadata(&self.path).is_err(), "{what} is still there");
            assert_eq!(fs::read(&self.backup).unwrap(), self.previous, "{what}");
            // Crashing now loses nothing: the next start finds the same.
            assert_eq!(load_blocking(&self.path).unwrap().metadata, metadata("previous"), "{what}");
        }
    }

    #[test]
    fn every_prefix_of_a_file_leads_to_the_generation_before() {
        let state = state();
        for length in 0..state.current.len() {
            let prefix = &state.current[..length];
            state.reset(prefix);
            state.assert_recovers(&format!("a prefix of {length} bytes"));
            assert_eq!(fs::read(state.aside(1)).unwrap(), prefix);
        }
    }

    #[test]
    fn every_prefix_without_a_backup_is_told_as_a_loss() {
        let state = state();
        for length in (0..state.current.len()).step_by(7) {
            state.reset(&state.current[..length]);
            fs::remove_file(&state.backup).unwrap();
            let loaded = load_blocking(&state.path).unwrap();
            assert_eq!(loaded.metadata, Metadata::default());
            assert!(
                matches!(&loaded.origin, Origin::Lost { quarantined, .. } if *quarantined == state.aside(1))
            );
        }
    }

    #[test]
    fn a_flipped_byte_gives_metadata_or_the_generation_before_but_never_nothing() {
        let state = state();
        for (at, bit) in (0..state.current.len()).map(|at| (at, 1_u8 << (at % 8))) {
            let mut bytes = state.current.clone();
            bytes[at] ^= bit;
            state.reset(&bytes);
            match load_blocking(&state.path) {
                Ok(Loaded { origin: Origin::File | Origin::Backup { .. }, .. }) => {}
                // The version's digit became a larger one: nothing is touched.
                Err(StoreError::TooNew { .. }) => assert_eq!(fs::read(&state.path).unwrap(), bytes),
                other => panic!("bit {bit} of byte {at}: {other:?}"),
            }
        }
    }

    #[test]
    fn text_of_another_shape_is_set_aside() {
        for text in ["null", "{}", "[]", r#"{"version":1}"#, "\u{feff}{}", "{}{}"] {
            let state = state();
            fs::write(&state.path, text).unwrap();
            state.assert_recovers(text);
        }
        let state = state();
        fs::write(&state.path, [&state.current[..], b"trailing"].concat()).unwrap();
        state.assert_recovers("trailing garbage");
    }

    #[test]
    fn what_is_no_file_is_set_aside_without_waiting_for_it() {
        let state_with = |make: fn(&PathBuf)| {
            let state = state();
            fs::remove_file(&state.path).unwrap();
            make(&state.path);
            state
        };
        state_with(|path| fs::create_dir(path).unwrap()).assert_recovers("a directory");
        state_with(|path| symlink(path, path).unwrap()).assert_recovers("a loop of links");
        state_with(|path| symlink("/dev/zero", path).unwrap()).assert_recovers("an endless device");
        let socket = |path: &PathBuf| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        state_with(socket).assert_recovers("a socket");
        #[cfg(target_os = "linux")] // rustix makes no FIFO on macOS.
        state_with(|path| {
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).unwrap();
        })
        .assert_recovers("a FIFO");
    }

    #[test]
    fn a_file_that_is_too_large_is_set_aside_unread() {
        let state = state();
        // Sparse: it takes no room.
        File::create(&state.path).unwrap().set_len(MAX_METADATA_BYTES + 1).unwrap();
        state.assert_recovers("too large");
        assert_eq!(fs::metadata(state.aside(1)).unwrap().len(), MAX_METADATA_BYTES + 1);
    }

    #[test]
    fn a_file_that_we_may_not_read_is_set_aside() {
        use std::os::unix::fs::PermissionsExt;
        let state = state();
        fs::set_permissions(&state.path, fs::Permissions::from_mode(0o000)).unwrap();
        if File::open(&state.path).is_ok() {
            return; // The super-user may read everything.
        }
        state.assert_recovers("mode 000");
    }

    #[test]
    fn a_newer_format_in_the_file_or_its_backup_is_left_untouched() {
        let newer = r#"{"version":999,"anything":true}"#;
        let state = state();
        fs::write(&state.path, newer).unwrap();
        let refused = load_blocking(&state.path);
        assert!(
            matches!(refused, Err(StoreError::TooNew { found: 999, known: 1, .. })),
            "{refused:?}"
        );
        assert_eq!(fs::read_to_string(&state.path).unwrap(), newer);

        fs::write(&state.path, "damaged").unwrap();
        fs::write(&state.backup, newer).unwrap();
        let refused = load_blocking(&state.path);
        assert!(matches!(refused, Err(StoreError::TooNew { found: 999, .. })), "{refused:?}");
        assert_eq!(fs::read_to_string(&state.path).unwrap(), "damaged");
        assert_eq!(fs::read_to_string(&state.backup).unwrap(), newer);
    }

    #[test]
    fn a_missing_file_is_a_first_start_only_if_there_is_no_backup() {
        let state = state();
        fs::remove_file(&state.path).unwrap();
        let loaded = load_blocking(&state.path).unwrap();
        assert_eq!(loaded.metadata, metadata("previous"));
        assert!(matches!(loaded.origin, Origin::Backup { quarantined: None, .. }));

        fs::write(&state.backup, "damaged").unwrap();
        let loaded = load_blocking(&state.path).unwrap();
        assert!(
            matches!(loaded.origin, Origin::Lost { quarantined, .. } if quarantined == state.aside(1))
        );
        let loaded = load_blocking(&state.path).unwrap();
        assert_eq!((loaded.metadata, loaded.origin), (Metadata::default(), Origin::Fresh));
    }

    #[test]
    fn two_bad_generations_are_both_kept_aside() {
        let state = state();
        fs::write(&state.path, "bad one").unwrap();
        fs::write(&state.backup, "bad two").unwrap();
        let loaded = load_blocking(&state.path).unwrap();
        assert!(
            matches!(&loaded.origin, Origin::Lost { quarantined, .. } if *quarantined == state.aside(1))
        );
        assert_eq!(fs::read_to_string(state.aside(1)).unwrap(), "bad one");
        assert_eq!(fs::read_to_string(state.aside(2)).unwrap(), "bad two");
    }

    #[test]
    fn leftovers_of_an_interrupted_save_disturb_neither_loading_nor_saving() {
        let state = state();
        for leftover in ["metadata.json.tmp", "metadata.json.bak.tmp"] {
            fs::write(state.path.with_file_name(leftover), "half a").unwrap();
        }
        assert_eq!(load_blocking(&state.path).unwrap().metadata, metadata("current"));
        save_blocking(&state.path, &metadata("next")).unwrap();
        assert_eq!(load_blocking(&state.path).unwrap().metadata, metadata("next"));
        assert_eq!(fs::read(&state.backup).unwrap(), state.current);
        assert_eq!(fs::read_dir(state.path.parent().unwrap()).unwrap().count(), 2);
    }
}
