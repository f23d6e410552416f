//! P-11: the loader handles any content in place of one of the two files. It quarantines the content and
//! recovers as much as possible. Every test runs for both files.

#[cfg(test)]
mod tests {
    use quackd_protocol::limits::{MAX_METADATA_BYTES, MAX_STATE_BYTES};
    use quackd_protocol::metadata::Metadata;
    use quackd_store::{
        Duplicate, DurableDocument, Origin, StateFile, StoreError, load_blocking, to_bytes,
    };
    use serde_json::{Value, json};
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    /// One of the two files.
    struct Kind {
        name: &'static str,
        max_bytes: u64,
        load: fn(&Path) -> Result<Loaded, StoreError>,
        bytes: fn(StateFile) -> Vec<u8>,
        empty: fn() -> Value,
    }

    /// Result of loading either file, independent of its type.
    #[derive(Debug, PartialEq)]
    struct Loaded {
        document: Value,
        origin: Origin,
        duplicates: Vec<Duplicate>,
    }

    fn load<D: DurableDocument>(path: &Path) -> Result<Loaded, StoreError> {
        let it = load_blocking::<D>(path)?;
        let document = serde_json::to_value(&it.document).unwrap();
        Ok(Loaded { document, origin: it.origin, duplicates: it.duplicates })
    }

    const KINDS: [Kind; 2] = [
        Kind {
            name: "metadata.json",
            max_bytes: MAX_METADATA_BYTES,
            load: load::<Metadata>,
            bytes: |file| to_bytes::<Metadata>(Path::new("f"), &file.metadata).unwrap(),
            empty: || json!({"version": 1, "workspaces": [], "sessions": [], "activeVoiceSessionId": null}),
        },
        Kind {
            name: "quackd-state.json",
            max_bytes: MAX_STATE_BYTES,
            load: load::<StateFile>,
            bytes: |file| to_bytes::<StateFile>(Path::new("f"), &file).unwrap(),
            empty: || json!({"version": 1, "sessions": {}}),
        },
    ];

    fn content(name: &str) -> StateFile {
        let time = "2026-01-02T03:04:05Z";
        let metadata = json!({
            "version": 1,
            "workspaces": [
                {"id": "w", "path": "/home/ü", "createdAt": time, "lastActiveSessionId": "s", "unknown": [1, "two"]},
            ],
            "sessions": [
                {"id": "s", "workspaceId": "w", "name": name, "piSessionFile": "", "createdAt": time,
                 "lastActiveAt": time, "isVoiceActive": false, "unknown": {"deep": null}},
            ],
            "activeVoiceSessionId": "s",
            "unknown": 1.5,
        });
        let entry = json!({
            "safeMode": true, "policy": "read-only", "engine": "e", "model": name, "restarts": 7, "unknown": [1, "two"],
        });
        let sessions = json!({"B1F7": entry, "s": {"restarts": 7}});
        let state = json!({"version": 1, "sessions": sessions, "unknown": {"deep": null}});
        StateFile {
            state: serde_json::from_value(state).unwrap(),
            metadata: serde_json::from_value(metadata).unwrap(),
            earlier: quackd_store::Earlier::default(),
            is_settled: false,
        }
    }

    /// A state directory with two generations of the file on disk.
    struct State {
        _guard: tempfile::TempDir,
        kind: &'static Kind,
        path: PathBuf,
        backup: PathBuf,
        /// Bytes of the two generations.
        current: Vec<u8>,
        previous: Vec<u8>,
    }

    fn state(kind: &'static Kind) -> State {
        // In memory if possible: these tests run thousands of fsyncs.
        let in_memory = tempfile::tempdir_in("/dev/shm");
        let guard = in_memory.or_else(|_| tempfile::tempdir()).unwrap();
        let path = guard.path().join(kind.name);
        let backup = guard.path().join(format!("{}.bak", kind.name));
        let [current, previous] = ["current", "previous"].map(|name| (kind.bytes)(content(name)));
        fs::write(&path, &current).unwrap();
        fs::write(&backup, &previous).unwrap();
        State { _guard: guard, kind, path, backup, current, previous }
    }

    impl State {
        /// Restores the initial state, with `bytes` as the file. Cheaper than two more durable saves.
        fn reset(&self, bytes: &[u8]) {
            fs::remove_file(self.aside(1)).ok();
            fs::write(&self.path, bytes).unwrap();
            fs::write(&self.backup, &self.previous).unwrap();
        }

        fn load(&self) -> Result<Loaded, StoreError> {
            (self.kind.load)(&self.path)
        }

        fn document(bytes: &[u8]) -> Value {
            serde_json::from_slice(bytes).unwrap()
        }

        fn aside(&self, n: u32) -> PathBuf {
            self.path.with_file_name(format!("{}.corrupt-{n}", self.kind.name))
        }

        fn names(&self) -> usize {
            fs::read_dir(self.path.parent().unwrap()).unwrap().count()
        }

        /// Checks a bad file: it must be quarantined, and the previous generation loaded.
        fn assert_recovers(&self, what: &str) {
            let what = format!("{what} as {}", self.kind.name);
            let previous = Self::document(&self.previous);
            let Loaded { document, origin, duplicates } = self.load().unwrap();
            assert_eq!((&document, duplicates), (&previous, Vec::new()), "{what}");
            let Origin::Backup { quarantined, reason, saved_at } = origin else {
                panic!("{what}: {origin:?}");
            };
            assert_eq!(quarantined, Some(self.aside(1)), "{what}");
            assert!(!reason.is_empty() && saved_at.is_some(), "{what}");
            assert!(fs::symlink_metadata(&self.path).is_err(), "{what} is still there");
            assert_eq!(fs::read(&self.backup).unwrap(), self.previous, "{what}");
            // A crash now loses nothing: the next start loads the same.
            assert_eq!(self.load().unwrap().document, previous, "{what}");
        }

        fn assert_lost(&self) {
            let loaded = self.load().unwrap();
            assert_eq!(loaded.document, (self.kind.empty)());
            let Origin::Lost { quarantined, reason } = &loaded.origin else { panic!("{loaded:?}") };
            assert_eq!(*quarantined, self.aside(1));
            assert!(!reason.is_empty());
        }
    }

    #[test]
    fn every_prefix_of_a_file_leads_to_the_generation_before() {
        for state in KINDS.iter().map(state) {
            for length in 0..state.current.len() {
                let prefix = &state.current[..length];
                state.reset(prefix);
                state.assert_recovers(&format!("a prefix of {length} bytes"));
                assert_eq!(fs::read(state.aside(1)).unwrap(), prefix);
            }
        }
    }

    #[test]
    fn every_prefix_without_a_backup_is_told_as_a_loss() {
        for state in KINDS.iter().map(state) {
            for length in 0..state.current.len() {
                state.reset(&state.current[..length]);
                fs::remove_file(&state.backup).unwrap();
                state.assert_lost();
            }
        }
    }

    /// Returns true if `loaded` contains everything in the file: unknown keys, and the values of the known
    /// keys. A known key that a bit flip renamed has its default value in addition.
    fn holds(loaded: &Value, file: &Value) -> bool {
        match (loaded, file) {
            (Value::Object(loaded), Value::Object(file)) => {
                file.iter().all(|(key, part)| loaded.get(key).is_some_and(|it| holds(it, part)))
            }
            (Value::Array(loaded), Value::Array(file)) => {
                loaded.len() == file.len() && loaded.iter().zip(file).all(|(l, f)| holds(l, f))
            }
            (loaded, file) => loaded == file,
        }
    }

    #[test]
    fn every_flipped_bit_is_loaded_as_it_stands_there_or_leads_to_the_generation_before() {
        for state in KINDS.iter().map(state) {
            let previous = State::document(&state.previous);
            let (mut as_it_stands, mut recovered, mut refused) = (0, 0, 0);
            for (at, bit) in
                (0..state.current.len()).flat_map(|at| (0..8).map(move |n| (at, 1 << n)))
            {
                let mut bytes = state.current.clone();
                bytes[at] ^= bit;
                state.reset(&bytes);
                let what = format!("bit {bit} of byte {at} of {}", state.kind.name);
                match state.load() {
                    Ok(Loaded { document, origin: Origin::File, duplicates }) => {
                        let file = State::document(&bytes);
                        assert!(holds(&document, &file), "{what}: {file:#} became {document:#}");
                        assert_eq!(duplicates, [], "{what}");
                        as_it_stands += 1;
                    }
                    Ok(Loaded { document, origin: Origin::Backup { quarantined, .. }, .. }) => {
                        assert_eq!(document, previous, "{what}");
                        assert_eq!(quarantined, Some(state.aside(1)), "{what}");
                        assert_eq!(fs::read(state.aside(1)).unwrap(), bytes, "{what}");
                        recovered += 1;
                    }
                    // The flip increased the version's digit: the files are unchanged.
                    Err(StoreError::TooNew { .. }) => {
                        assert_eq!(fs::read(&state.path).unwrap(), bytes, "{what}");
                        refused += 1;
                    }
                    other => panic!("{what}: {other:?}"),
                }
            }
            // The digits 3, 5 and 9 differ from 1 by one bit.
            assert_eq!(refused, 3, "of the file's own version");
            assert!(100 < as_it_stands && 1000 < recovered, "{as_it_stands}, {recovered}");
        }
    }

    #[test]
    fn text_of_another_shape_is_set_aside() {
        for state in KINDS.iter().map(state) {
            let trailing = [&state.current[..], b"trailing"].concat();
            let twice = state.current.repeat(2);
            let texts: [&[u8]; 9] = [
                b"n",
                b"null",
                b"{}",
                b"[]",
                br#"{"version":1}"#,
                "\u{feff}{}".as_bytes(),
                b"{}{}",
                &trailing,
                &twice,
            ];
            for text in texts {
                state.reset(text);
                state.assert_recovers(&String::from_utf8_lossy(text));
            }
        }
    }

    #[test]
    fn what_is_no_file_is_set_aside_without_waiting_for_it() {
        type Make = fn(&Path);
        let kinds: &[(&str, Make)] = &[
            ("a directory", |path| {
                fs::create_dir(path).unwrap();
                fs::write(path.join("content"), "").unwrap();
            }),
            ("a loop of links", |path| symlink(path, path).unwrap()),
            ("an endless device", |path| symlink("/dev/zero", path).unwrap()),
            ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
            #[cfg(target_os = "linux")] // rustix makes no FIFO on macOS.
            ("a FIFO", |path| {
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).unwrap();
            }),
        ];
        for (what, make) in kinds {
            for state in KINDS.iter().map(state) {
                fs::remove_file(&state.path).unwrap();
                make(&state.path);
                state.assert_recovers(what);
            }
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_set_aside_unread() {
        for state in KINDS.iter().map(state) {
            let length = state.kind.max_bytes + 1;
            // A sparse file needs no disk space.
            File::create(&state.path).unwrap().set_len(length).unwrap();
            state.assert_recovers("too large");
            assert_eq!(fs::metadata(state.aside(1)).unwrap().len(), length);
        }
    }

    #[test]
    fn a_file_that_we_may_not_read_is_set_aside() {
        use std::os::unix::fs::PermissionsExt;
        for state in KINDS.iter().map(state) {
            fs::set_permissions(&state.path, fs::Permissions::from_mode(0o000)).unwrap();
            if File::open(&state.path).is_ok() {
                return; // The super-user may read everything; a black-box test drops that right.
            }
            state.assert_recovers("mode 000");
        }
    }

    #[test]
    fn a_newer_format_in_the_file_or_its_backup_is_left_untouched() {
        let newer = r#"{"version":999,"anything":true}"#;
        for state in KINDS.iter().map(state) {
            state.reset(newer.as_bytes());
            let refused = state.load();
            assert!(
                matches!(refused, Err(StoreError::TooNew { found: 999, known: 1, .. })),
                "{refused:?}"
            );
            assert_eq!(fs::read_to_string(&state.path).unwrap(), newer);

            fs::write(&state.path, "damaged").unwrap();
            fs::write(&state.backup, newer).unwrap();
            let refused = state.load();
            assert!(matches!(refused, Err(StoreError::TooNew { found: 999, .. })), "{refused:?}");
            assert_eq!(fs::read_to_string(&state.path).unwrap(), "damaged");
            assert_eq!(fs::read_to_string(&state.backup).unwrap(), newer);
            assert_eq!(state.names(), 2);
        }
    }

    #[test]
    fn a_missing_file_is_a_first_start_only_if_there_is_no_backup() {
        for state in KINDS.iter().map(state) {
            fs::remove_file(&state.path).unwrap();
            let loaded = state.load().unwrap();
            assert_eq!(loaded.document, State::document(&state.previous));
            assert!(matches!(loaded.origin, Origin::Backup { quarantined: None, .. }));

            fs::write(&state.backup, "damaged").unwrap();
            state.assert_lost();
            let fresh = Loaded {
                document: (state.kind.empty)(),
                origin: Origin::Fresh,
                duplicates: Vec::new(),
            };
            assert_eq!(state.load().unwrap(), fresh);
        }
    }

    #[test]
    fn two_bad_generations_are_both_kept_aside() {
        for state in KINDS.iter().map(state) {
            fs::write(&state.path, "bad one").unwrap();
            fs::write(&state.backup, "bad two").unwrap();
            state.assert_lost();
            assert_eq!(fs::read_to_string(state.aside(1)).unwrap(), "bad one");
            assert_eq!(fs::read_to_string(state.aside(2)).unwrap(), "bad two");
            assert_eq!(state.names(), 2);
        }
    }

    #[test]
    fn one_bad_file_does_not_concern_the_other() {
        for (bad, good) in [(0, 1), (1, 0)] {
            let bad = state(&KINDS[bad]);
            let good_path = bad.path.with_file_name(KINDS[good].name);
            let good = state(&KINDS[good]);
            fs::write(&good_path, &good.current).unwrap();
            fs::write(&bad.path, "bad").unwrap();
            bad.assert_recovers("text");
            let loaded = (good.kind.load)(&good_path).unwrap();
            assert_eq!(
                (loaded.document, loaded.origin),
                (State::document(&good.current), Origin::File)
            );
        }
    }
}
