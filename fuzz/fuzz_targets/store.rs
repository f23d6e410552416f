//! The daemon's two files with random content. A valid file is equal after it is written and read again. An
//! invalid file is quarantined unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_fuzz::scratch;
use quackd_protocol::metadata::Metadata;
use quackd_store::{DurableDocument, Loaded, Origin, StateFile, StoreError, load_blocking};
use std::fmt::Debug;
use std::fs;
use std::path::Path;

fn check<D: DurableDocument + PartialEq + Debug>(content: &[u8]) {
    let load = |path: &Path| load_blocking::<D>(path);
    let path = scratch().join("file.json");
    fs::write(&path, content).expect("write the file");
    match load(&path) {
        Ok(Loaded { document, origin: Origin::File, .. }) => {
            assert_eq!(fs::read(&path).ok().as_deref(), Some(content), "reading writes nothing");
            let written = serde_json::to_vec_pretty(&document).expect("what was read is JSON");
            fs::write(&path, written).expect("write the file");
            let again = load(&path).expect("what we write can be read");
            assert_eq!((again.document, again.origin), (document, Origin::File));
            assert_eq!(again.duplicates, []);
        }
        Ok(Loaded { document, origin: Origin::Lost { quarantined, .. }, duplicates, .. }) => {
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
    match which % 2 {
        0 => check::<Metadata>(content),
        _ => check::<StateFile>(content),
    }
});
