//! Tests of a root, for both methods of access. They create FIFOs and use the error numbers of Linux.

#![cfg(target_os = "linux")]

use super::*;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use tempfile::TempDir;

impl Root {
    /// Returns the same root with the other method of access.
    pub(crate) fn by_walk(self) -> Self {
        Self::open_with(&self.given, Access::walk).unwrap()
    }
}

/// A workspace next to a secret, and every kind of link between them.
struct Tree {
    dir: TempDir,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        for name in ["ws/sub/deep", "outside", "ws-twin"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        for name in ["ws/a", "ws/sub/b", "ws/sub/deep/c", "outside/secret", "ws-twin/secret"] {
            File::create(base.join(name)).unwrap().write_all(name.as_bytes()).unwrap();
        }
        let ws = base.join("ws");
        symlink("a", ws.join("to-a")).unwrap();
        symlink("../a", ws.join("sub/up-to-a")).unwrap();
        symlink(ws.join("sub/b"), ws.join("absolute-to-b")).unwrap();
        symlink("sub", ws.join("to-sub")).unwrap();
        symlink(ws.join("sub"), ws.join("absolute-to-sub")).unwrap();
        symlink("../outside/secret", ws.join("out")).unwrap();
        symlink(base.join("outside/secret"), ws.join("absolute-out")).unwrap();
        symlink("../outside", ws.join("out-dir")).unwrap();
        symlink("../outside/missing", ws.join("dangling-out")).unwrap();
        symlink(base.join("outside/missing"), ws.join("absolute-dangling-out")).unwrap();
        symlink("missing", ws.join("dangling-in")).unwrap();
        symlink(ws.join("missing"), ws.join("absolute-dangling-in")).unwrap();
        symlink("loop-b", ws.join("loop-a")).unwrap();
        symlink("loop-a", ws.join("loop-b")).unwrap();
        symlink("ws", base.join("other-spelling")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, ws.join("fifo"), rustix::fs::Mode::RUSR).unwrap();
        // The file stays when the listener is closed.
        drop(UnixListener::bind(ws.join("socket")).unwrap());
        symlink("/dev/zero", ws.join("device")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// The same root by both ways of access.
    fn roots(&self) -> [Root; 2] {
        let ws = self.dir.path().join("ws");
        [Root::open(&ws).unwrap(), Root::open_with(&ws, Access::walk).unwrap()]
    }
}

/// The content of a file, or the name of the refusal.
fn outcome(root: &Root, argument: &str) -> String {
    match root.open_file(argument) {
        Ok(mut open) => {
            let mut text = String::new();
            open.file.read_to_string(&mut text).unwrap();
            assert_eq!(open.len, text.len() as u64);
            text
        }
        Err(PathError::Escapes) => "escapes".into(),
        Err(PathError::NotFound) => "not found".into(),
        Err(PathError::IsDirectory) => "directory".into(),
        Err(PathError::NotRegular { kind }) => kind.to_string(),
        Err(PathError::Io(error)) => Errno::from_io_error(&error)
            .map_or_else(|| error.to_string(), |e| e.raw_os_error().to_string()),
    }
}

#[test]
fn every_spelling_opens_or_is_refused_alike_by_both_ways() {
    let tree = Tree::new();
    let [eloop, too_long] =
        [Errno::LOOP, Errno::NAMETOOLONG].map(|errno| errno.raw_os_error().to_string());
    let long = "x".repeat(5000);
    let absolute = |name: &str| tree.path(name);
    let cases: Vec<(String, &str)> = vec![
        ("a".into(), "ws/a"),
        ("./sub/../a".into(), "ws/a"),
        ("nowhere/../a".into(), "ws/a"),
        ("sub//b".into(), "ws/sub/b"),
        ("sub/deep/../../a".into(), "ws/a"),
        ("../ws/a".into(), "ws/a"),
        (absolute("ws/a"), "ws/a"),
        (absolute("ws/../ws/sub/b"), "ws/sub/b"),
        (absolute("other-spelling/sub/b"), "ws/sub/b"),
        (absolute("other-spelling/missing"), "not found"),
        ("to-a".into(), "ws/a"),
        ("sub/up-to-a".into(), "ws/a"),
        ("to-sub/b".into(), "ws/sub/b"),
        ("to-sub/up-to-a".into(), "ws/a"),
        ("absolute-to-b".into(), "ws/sub/b"),
        ("absolute-to-sub/deep/c".into(), "ws/sub/deep/c"),
        ("absolute-to-sub/up-to-a".into(), "ws/a"),
        ("".into(), "directory"),
        (".".into(), "directory"),
        ("sub".into(), "directory"),
        ("absolute-to-sub".into(), "directory"),
        ("..".into(), "escapes"),
        ("../outside/secret".into(), "escapes"),
        ("../ws-twin/secret".into(), "escapes"),
        (absolute("ws-twin/secret"), "escapes"),
        (absolute("outside/secret"), "escapes"),
        (absolute("outside/missing"), "escapes"),
        ("/etc/passwd".into(), "escapes"),
        ("/etc/passwd/x".into(), "escapes"),
        ("/".into(), "escapes"),
        ("out".into(), "escapes"),
        ("absolute-out".into(), "escapes"),
        ("out-dir/secret".into(), "escapes"),
        ("out-dir/missing".into(), "escapes"),
        ("dangling-out".into(), "escapes"),
        ("absolute-dangling-out".into(), "escapes"),
        ("absolute-dangling-in".into(), "not found"),
        ("dangling-in".into(), "not found"),
        ("missing".into(), "not found"),
        ("missing/deeper".into(), "not found"),
        ("a/below-a-file".into(), "not found"),
        ("~/a".into(), "not found"),
        ("loop-a".into(), &eloop),
        ("fifo".into(), "fifo"),
        ("socket".into(), "socket"),
        ("device".into(), "escapes"),
        ("a\0b".into(), "path contains a NUL byte"),
        (long, &too_long),
        ("x".repeat(300), &too_long),
    ];
    for root in tree.roots() {
        for (argument, expected) in &cases {
            assert_eq!(outcome(&root, argument), *expected, "{argument:.80} with {root:?}");
            if let Some(file) = root.read_cached(argument, 100) {
                assert_eq!(file.content, expected.as_bytes(), "{argument:.80} with {root:?}");
            }
        }
    }
}

#[test]
fn a_device_inside_the_root_is_refused_without_being_read() {
    for root in [
        Root::open(Path::new("/dev")).unwrap(),
        Root::open_with(Path::new("/dev"), Access::walk).unwrap(),
    ] {
        assert_eq!(outcome(&root, "zero"), "character device");
    }
}

#[test]
fn metadata_resolves_links_and_says_what_is_there() {
    let tree = Tree::new();
    for root in tree.roots() {
        let found = |argument: &str| {
            let metadata = root.metadata(argument).unwrap();
            (metadata.relative.to_str().unwrap().to_owned(), metadata.kind, metadata.len)
        };
        assert_eq!(found("a"), ("a".into(), Kind::File, 4));
        assert_eq!(found("absolute-to-sub/up-to-a"), ("a".into(), Kind::File, 4));
        assert_eq!(found("fifo"), ("fifo".into(), Kind::Fifo, 0));
        assert_eq!(found("socket").1, Kind::Socket);
        assert_eq!(found("to-sub").0, "sub");
        assert_eq!((found("").0.as_str(), found(".").1), ("", Kind::Directory));
        assert!(matches!(root.metadata("dangling-in"), Err(PathError::NotFound)));
        assert!(matches!(root.metadata("dangling-out"), Err(PathError::Escapes)));
        assert!(matches!(root.metadata("out-dir"), Err(PathError::Escapes)));
        assert!(matches!(root.metadata("loop-a"), Err(PathError::Io(_))));
    }
}

#[test]
fn a_walk_opens_regular_files_and_never_leaves() {
    let tree = Tree::new();
    for root in tree.roots() {
        root.open_relative(Path::new("sub/b")).unwrap();
        for name in ["out", "absolute-out", "out-dir/secret", "fifo", "sub", "../outside/secret"] {
            assert!(root.open_relative(Path::new(name)).is_err(), "{name} with {root:?}");
        }
        assert!(root.open_relative(&tree.dir.path().join("outside/secret")).is_err());
    }
    for root in tree.roots() {
        let error = root.open_relative(Path::new("to-a")).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP), "{root:?}");
    }
}

/// Both roots, which hide `sub/deep`, `missing` and the file `a`.
fn hiding_roots(tree: &Tree) -> [Root; 2] {
    let hidden = ["ws/sub/deep", "ws/missing", "ws/a", "outside"];
    let hidden = hidden.map(|name| PathBuf::from(tree.path(name)));
    tree.roots().map(|root| root.with_hidden(&hidden))
}

#[test]
fn hidden_paths_count_as_missing_by_every_name() {
    let tree = Tree::new();
    for root in hiding_roots(&tree) {
        for argument in [
            "a",
            "A",
            "sub/../a",
            "to-a",
            "sub/up-to-a",
            "to-sub/up-to-a",
            &tree.path("ws/a"),
            &tree.path("other-spelling/a"),
            "sub/deep",
            "sub/deep/c",
            "SUB/Deep/c",
            "to-sub/deep/c",
            "absolute-to-sub/deep/c",
            "sub/deep/nothing",
            "missing",
            "dangling-in",
            "absolute-dangling-in",
        ] {
            assert_eq!(outcome(&root, argument), "not found", "{argument} with {root:?}");
            assert!(matches!(root.metadata(argument), Err(PathError::NotFound)), "{argument}");
            assert!(matches!(root.real_name(argument), Err(PathError::NotFound)), "{argument}");
            assert!(root.read_cached(argument, 100).is_none(), "{argument}");
        }
        for (argument, expected) in [
            ("sub/b", "ws/sub/b"),
            ("to-sub/b", "ws/sub/b"),
            ("absolute-to-b", "ws/sub/b"),
            ("", "directory"),
            ("sub", "directory"),
            ("out", "escapes"),
            ("fifo", "fifo"),
            ("socket", "socket"),
        ] {
            assert_eq!(outcome(&root, argument), expected, "{argument} with {root:?}");
        }
    }
}

#[test]
fn a_walk_does_not_open_hidden_paths() {
    let tree = Tree::new();
    for root in hiding_roots(&tree) {
        let is_missing = |opened: io::Result<File>| {
            opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        for file in ["a", "sub/deep/c", "sub/DEEP/c"] {
            assert!(is_missing(root.open_relative(Path::new(file))), "{file} with {root:?}");
        }
        assert!(is_missing(root.open_directory(Path::new("sub/deep"))));
        root.open_relative(Path::new("sub/b")).unwrap();
        root.open_directory(Path::new("sub")).unwrap();
        for (directory, name, is_hidden) in [
            ("sub", "deep", true),
            ("SUB", "Deep", true),
            ("sub/deep", "c", true),
            ("", "a", true),
            ("", "sub", false),
            ("sub", "a", false),
        ] {
            let hides = root.hides(Path::new(directory), OsStr::new(name));
            assert_eq!(hides, is_hidden, "{directory} {name}");
        }
    }
    for root in tree.roots() {
        assert!(!root.hides(Path::new(""), OsStr::new("a")));
    }
}

#[test]
fn links_to_a_hidden_path_and_links_that_are_hidden_are_refused() {
    let tree = Tree::new();
    let ws = tree.dir.path().join("ws");
    // The configuration may name a link, or a path behind one.
    let by_link = [ws.join("to-a"), tree.dir.path().join("other-spelling/sub/b")];
    for root in tree.roots().map(|root| root.with_hidden(&by_link)) {
        for argument in ["to-a", "a", "sub/b", "absolute-to-b"] {
            assert_eq!(outcome(&root, argument), "not found", "{argument} with {root:?}");
        }
        assert_eq!(outcome(&root, "sub/deep/c"), "ws/sub/deep/c");
    }
}

#[test]
fn a_walk_by_names_follows_no_link_anywhere_on_the_path() {
    let tree = Tree::new();
    for root in tree.roots() {
        for name in ["to-sub/b", "absolute-to-sub/b", "to-a"] {
            let error = root.open_relative(Path::new(name)).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP), "{name} with {root:?}");
        }
    }
}

#[test]
fn a_root_is_stale_once_its_path_names_another_directory() {
    let tree = Tree::new();
    let ws = tree.dir.path().join("ws");
    let [root, _] = tree.roots();
    let by_link = Root::open(&tree.dir.path().join("other-spelling")).unwrap();
    assert_eq!(by_link.path(), fs::canonicalize(&ws).unwrap());
    assert!(!root.is_stale() && !by_link.is_stale());

    fs::remove_file(tree.dir.path().join("other-spelling")).unwrap();
    symlink("ws-twin", tree.dir.path().join("other-spelling")).unwrap();
    assert!(!root.is_stale() && by_link.is_stale());

    fs::remove_dir_all(&ws).unwrap();
    assert!(root.is_stale());
    fs::create_dir(&ws).unwrap();
    assert!(root.is_stale());
    assert!(!Root::open(&ws).unwrap().is_stale());
}

#[test]
fn only_a_directory_can_be_a_root() {
    let tree = Tree::new();
    for name in ["ws/a", "ws/missing", "ws/fifo"] {
        assert!(Root::open(&tree.dir.path().join(name)).is_err(), "{name}");
    }
}

/// Sets the time of the last access of a file, so that a read does not change it.
fn seem_read(path: &Path) {
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    File::open(path).unwrap().set_times(fs::FileTimes::new().set_accessed(later)).unwrap();
}

#[test]
fn a_file_in_memory_is_read_without_links_and_never_from_a_root_that_was_replaced() {
    let tree = Tree::new();
    let [root, by_walk] = tree.roots();
    seem_read(&root.path().join("a"));
    // Other file systems may have to wait.
    let is_local = root.cached_reads != CachedReads::Never;
    let text = |argument: &str| {
        let file = root.read_cached(argument, 100)?;
        assert_eq!(file.name, Path::new("a"));
        assert_eq!(file.version, root.open_file(argument).unwrap().version);
        Some(String::from_utf8(file.content).unwrap())
    };
    for spelling in ["a", "sub/../a", &tree.path("ws/a")] {
        assert_eq!(text(spelling), is_local.then(|| "ws/a".to_owned()), "{spelling}");
    }
    for other in ["to-a", "other-spelling/a", "sub", "fifo", "out", "../outside/secret", "missing"]
    {
        assert!(root.read_cached(other, 100).is_none(), "{other}");
    }
    assert!(root.read_cached("a", 3).is_none(), "it is too long");
    assert!(by_walk.read_cached("a", 100).is_none());
    rustix::fs::rename(tree.path("ws"), tree.path("moved")).unwrap();
    fs::create_dir(tree.path("ws")).unwrap();
    assert!(root.read_cached("a", 100).is_none(), "the root is stale");
}

#[test]
fn a_read_that_would_change_the_time_of_the_last_access_is_left_to_a_thread_that_may_block() {
    let tree = Tree::new();
    let [root, _] = tree.roots();
    let path = root.path().join("a");
    let allows = |reads: CachedReads| {
        let file = fs::metadata(&path).unwrap();
        reads.allow(&file)
    };
    let old = std::time::SystemTime::UNIX_EPOCH;
    File::open(&path).unwrap().set_times(fs::FileTimes::new().set_accessed(old)).unwrap();
    let reads = [CachedReads::Never, CachedReads::RelativeAccessTime, CachedReads::NoAccessTime];
    assert_eq!(reads.map(allows), [false, false, true]);
    seem_read(&path);
    assert_eq!(reads.map(allows), [false, true, true]);
}
