//! The daemon's two files with random content. A valid file is equal after it is written and read again. An
//! invalid file is quarantined unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_fuzz::scratch;
use quackd_store::{Duplicate, Origin, StoreError, load_blocking, load_state_blocking};
use serde::Serialize;
use std::fmt::Debug;
use std::fs;
use std::path::Path;

/// Loaded document, its source and its duplicates.
type Loading<D> = Result<(D, Origin, Vec<Duplicate>), StoreError>;

fn check<D: Serialize + Default + PartialEq + Debug>(
    load: fn(&Path) -> Loading<D>,
    content: &[u8],
) {
    let path = scratch().join("file.json");
    fs::write(&path, content).expect("write the file");
    match load(&path) {
        Ok((document, Origin::File, _)) => {
            assert_eq!(fs::read(&path).ok().as_deref(), Some(content), "reading writes nothing");
            let written = serde_json::to_vec_pretty(&document).expect("what was read is JSON");
            fs::write(&path, written).expect("write the file");
            let again = load(&path).expect("what we write can be read");
            assert_eq!(again, (document, Origin::File, vec![]));
        }
        Ok((document, Origin::Lost { quarantined, .. }, duplicates)) => {
            assert_eq!((document, duplicates), (D::default(), vec![]));
            assert!(!path.exists());
            assert_eq!(fs::read(&quarantined).ok().as_deref(), Some(content), "it is kept");
            fs::remove_file(quarantined).expect("remove the file");
            return;
        }
        Err(StoreError::TooNew { found, known, .. }) => {
            assert!(known < found);
            assert_eq!(fs::read(&path).ok().as_deref(), Some(content), "it is left alone");
        }
        other => panic!("{other:?}"),
    }
    fs::remove_file(path).expect("remove the file");
}

fuzz_target!(|data: &[u8]| {
    let Some((which, content)) = data.split_first() else { return };
    if which % 2 == 0 {
        let load = |path: &Path| {
            load_blocking(path).map(|found| (found.metadata, found.origin, found.duplicates))
        };
        check(load, content);
    } else {
        let load = |path: &Path| {
            load_state_blocking(path).map(|found| (found.state, found.origin, found.duplicates))
        };
        check(load, content);
    }
});
