//! Tests of placeholders: creation and removal, without removing the user's files.

use super::*;
use quackd_testkit::TestDir;
use std::fs;

struct World {
    directory: TestDir,
}

impl World {
    fn new() -> Self {
        Self { directory: TestDir::with(&["ws/.git/info"]) }
    }

    fn registry(&self) -> PathBuf {
        self.directory.path().join("registry")
    }

    fn git(&self) -> PathBuf {
        self.directory.join("ws/.git")
    }

    fn worker(&self) -> Placeholders {
        let mut made = Placeholders::open_blocking(&self.registry()).unwrap();
        let (git, path) = (File::open(self.git()).unwrap(), self.git());
        made.join(&git, &path).unwrap();
        for (name, shape) in [
            ("hooks", PlaceholderKind::Directory),
            ("commondir", PlaceholderKind::CommonDir),
            ("info/attributes", PlaceholderKind::EmptyFile),
        ] {
            made.make(&git, &path, Path::new(name), shape).unwrap();
        }
        made
    }

    fn exists(&self, name: &str) -> bool {
        self.git().join(name).exists()
    }

    fn clean(&self) -> CleanupStats {
        clean_blocking(&self.registry()).unwrap()
    }
}

#[test]
fn they_stay_while_any_worker_needs_them() {
    let world = World::new();
    assert_eq!(world.clean(), CleanupStats::default());
    let first = world.worker();
    let second = world.worker();
    assert_eq!(fs::read(world.git().join("commondir")).unwrap(), OWN_COMMONDIR);
    assert_eq!(world.clean(), CleanupStats { removed: 0, in_use: 1 });
    drop(first);
    assert_eq!(world.clean(), CleanupStats { removed: 0, in_use: 1 });
    assert!(world.exists("hooks") && world.exists("info/attributes"));
    drop(second);
    assert_eq!(world.clean(), CleanupStats { removed: 3, in_use: 0 });
    assert!(!world.exists("hooks") && !world.exists("info/attributes") && world.exists("info"));
    assert_eq!(world.clean(), CleanupStats::default());
    drop(world.worker());
    assert_eq!(world.clean().removed, 3);
}

#[test]
fn what_somebody_has_filled_stays() {
    let world = World::new();
    drop(world.worker());
    fs::write(world.git().join("hooks/pre-commit"), "x").unwrap();
    fs::write(world.git().join("info/attributes"), "x").unwrap();
    assert_eq!(world.clean().removed, 1);
    assert!(world.exists("hooks/pre-commit") && world.exists("info/attributes"));
}

#[test]
fn what_was_there_before_is_not_recorded() {
    let world = World::new();
    fs::create_dir(world.git().join("hooks")).unwrap();
    drop(world.worker());
    assert_eq!(world.clean().removed, 2);
    assert!(world.exists("hooks"));
}

#[test]
fn another_repository_in_its_place_is_left_alone() {
    let world = World::new();
    drop(world.worker());
    let away = world.git().with_file_name("away");
    rustix::fs::rename(world.git(), &away).unwrap();
    fs::create_dir_all(world.git().join("info")).unwrap();
    fs::write(world.git().join("info/attributes"), "").unwrap();
    assert_eq!(world.clean().removed, 0);
    assert!(world.exists("info/attributes"));
}

#[test]
fn rubbish_in_the_registry_is_forgotten() {
    let world = World::new();
    drop(world.worker());
    fs::write(world.registry().join("rubbish"), b"/etc\0f../passwd\0x\0\0").unwrap();
    fs::write(world.registry().join("empty"), b"").unwrap();
    assert_eq!(world.clean().removed, 3);
    assert_eq!(fs::read_dir(world.registry()).unwrap().count(), 0);
}
