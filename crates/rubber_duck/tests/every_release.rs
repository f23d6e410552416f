//! P-24: files of every program that ever wrote them still load, and our next save keeps all their keys.
//!
//! The fixtures of other programs follow their sources. Upstream's daemon writes milliseconds, and null for
//! absent values. The macOS app writes sorted keys and escaped slashes, and leaves absent values out. Every
//! release of quackd adds a fixture; existing fixtures never change.

#[cfg(test)]
mod tests {
    use quackd_rubber_duck::{Opened, Paths, open_blocking};
    use quackd_store::Origin;
    use serde_json::Value;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn fixtures() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/metadata")
    }

    /// Fixture and its number of sessions.
    const METADATA: &[(&str, usize)] = &[
        ("macos-app.metadata.json", 3),
        ("quackd-0.1.0.metadata.json", 1),
        ("upstream-0.1.19.metadata.json", 1),
        ("upstream-0.1.24.metadata.json", 2),
    ];
    const STATE: &[(&str, usize)] = &[
        ("quackd-0.1.0.quackd-state.json", 2),
        ("quackd-0.1.0-with-sessions.quackd-state.json", 2),
    ];

    /// Returns true if `all` contains everything in `part`. It may contain more: absent values are written as
    /// null or as an empty string.
    fn contains(all: &Value, part: &Value) -> bool {
        match (all, part) {
            (Value::Object(all), Value::Object(part)) => part
                .iter()
                .all(|(key, part)| all.get(key).is_some_and(|value| contains(value, part))),
            (Value::Array(all), Value::Array(part)) => {
                all.len() == part.len() && all.iter().zip(part).all(|(a, p)| contains(a, p))
            }
            (all, part) => all == part,
        }
    }

    /// Creates a state directory with this fixture.
    fn world(fixture: &str, name: &str) -> (tempfile::TempDir, Paths, Value) {
        let dir = tempfile::tempdir().unwrap();
        let text = fs::read(fixtures().join(fixture)).unwrap();
        fs::write(dir.path().join(name), &text).unwrap();
        let paths = Paths {
            metadata: dir.path().join("metadata.json"),
            state: dir.path().join("quackd-state.json"),
        };
        (dir, paths, serde_json::from_slice(&text).unwrap())
    }

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn metadata_of_every_release_is_loaded_and_saved_without_losing_a_key() {
        for (fixture, n_sessions) in METADATA {
            let (_dir, paths, wanted) = world(fixture, "metadata.json");
            let Opened { snapshot, metadata, restored, files, .. } = open_blocking(paths.clone());
            assert_eq!(metadata.unwrap(), (Origin::File, Vec::new()), "{fixture}");
            assert_eq!((snapshot.metadata.sessions.len(), restored), (*n_sessions, 0), "{fixture}");

            files.unwrap().save_blocking(&snapshot).unwrap();
            let saved = read(&paths.metadata);
            assert!(contains(&saved, &wanted), "{fixture}: {saved:#}");
            let saved = read(&paths.state);
            assert!(contains(&saved["metadata"], &wanted), "{fixture}: {saved:#}");
            // Our state alone has everything, too.
            fs::remove_file(&paths.metadata).unwrap();
            assert_eq!(open_blocking(paths.clone()).snapshot, snapshot, "{fixture}");
        }
    }

    #[test]
    fn the_state_of_every_release_is_loaded_and_saved_as_it_was() {
        for (fixture, n_sessions) in STATE {
            let (_dir, paths, wanted) = world(fixture, "quackd-state.json");
            let Opened { snapshot, state, files, .. } = open_blocking(paths.clone());
            assert_eq!(state.unwrap(), (Origin::File, Vec::new()), "{fixture}");
            assert_eq!(snapshot.state.sessions.len(), *n_sessions, "{fixture}");

            files.unwrap().save_blocking(&snapshot).unwrap();
            let mut saved = read(&paths.state);
            if wanted.get("metadata").is_none() {
                // The sessions, which older versions do not have there.
                saved.as_object_mut().unwrap().remove("metadata").unwrap();
            }
            assert_eq!(saved, wanted, "{fixture}");
        }
    }

    #[test]
    fn our_own_files_come_back_byte_for_byte() {
        let (dir, paths, _) = world("quackd-0.1.0.metadata.json", "metadata.json");
        let state =
            fs::read(fixtures().join("quackd-0.1.0-with-sessions.quackd-state.json")).unwrap();
        let metadata = fs::read(&paths.metadata).unwrap();
        fs::write(&paths.state, &state).unwrap();
        let Opened { snapshot, files, .. } = open_blocking(paths.clone());
        files.unwrap().save_blocking(&snapshot).unwrap();
        assert_eq!(fs::read(&paths.metadata).unwrap(), metadata);
        assert_eq!(fs::read(&paths.state).unwrap(), state);
        drop(dir);
    }

    #[test]
    fn every_fixture_is_tested() {
        let entries = fs::read_dir(fixtures()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let mut tested: Vec<_> = METADATA.iter().chain(STATE).map(|(name, _)| *name).collect();
        tested.sort_unstable();
        assert_eq!(names, tested);
    }

    #[test]
    fn the_comparison_sees_what_is_missing() {
        let all = serde_json::json!({"a": [{"b": 1, "c": null}], "d": ""});
        for (part, wanted) in [
            (r#"{"a":[{"b":1}]}"#, true),
            (r#"{"a":[{"b":2}]}"#, false),
            (r#"{"a":[]}"#, false),
            (r#"{"e":null}"#, false),
        ] {
            assert_eq!(contains(&all, &serde_json::from_str(part).unwrap()), wanted, "{part}");
        }
    }
}
