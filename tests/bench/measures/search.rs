//! Searches over a large tree and one large file, compared with other programs.
//!
//! [`super::compare`] runs the programs.

use super::Effort;
use super::compare::{Lane, Programs, in_turn, read_all};
use crate::daemon::Daemon;
use crate::report::Row;
use crate::wire::{Line, Wire};
use quackd_search::{Find, NameRule, Pattern, Search, Stop, Tree};
use quackd_testkit::program;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files of the large tree, in directories of 50.
const FILES: usize = 26_000;

/// Bytes of the large file.
const LARGE: u64 = 1 << 30;

/// Timeout of a comparison.
const LIMIT: Duration = Duration::from_secs(60);

/// Limits of the ratios of client to client.
const GOALS: &[(&str, Option<f64>)] =
    &[("rg --sort path", Some(0.5)), ("rg", Some(1.0)), ("fd -HI -t f", Some(0.8))];

/// One search: a name, and the arguments of the tool, rg and grep.
struct Query {
    name: &'static str,
    arguments: Value,
    pattern: Pattern,
    rg: &'static [&'static str],
    grep: &'static [&'static str],
}

fn queries() -> Vec<Query> {
    let plain = |name, text: &'static str, words: &'static [&'static str]| Query {
        name,
        arguments: json!({"pattern": text, "limit": 10_000}),
        pattern: Pattern::new(text),
        rg: words,
        grep: words,
    };
    let word = Pattern {
        boundary: quackd_search::Boundary::Word,
        case: quackd_search::Case::Insensitive,
        ..Pattern::new("resolve_needle")
    };
    vec![
        plain("literal in 26 files", "needle_of_the_tree", &["-e", "needle_of_the_tree"]),
        Query {
            grep: &["-E", "-e", "alpha_needle|beta_needle|gamma_needle"],
            ..plain(
                "alternation of three",
                "alpha_needle|beta_needle|gamma_needle",
                &["-e", "alpha_needle|beta_needle|gamma_needle"],
            )
        },
        Query {
            name: "word, any case",
            arguments: json!({"pattern": "resolve_needle", "mode": "word", "case": "insensitive",
                              "limit": 10_000}),
            pattern: word,
            rg: &["-w", "-i", "-e", "resolve_needle"],
            grep: &["-w", "-i", "-e", "resolve_needle"],
        },
        plain("no match", "nothing_has_this_name", &["-e", "nothing_has_this_name"]),
        plain("many matches (ours: the first 100 KiB)", "return", &["-e", "return"]),
    ]
}

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let large = daemon.repo("large")?;
    let n_files = if effort.quick { FILES / 20 } else { FILES };
    plant(&large, n_files)?;
    let small = daemon.repo("small")?;
    plant(&small, 100)?;
    let programs = Programs::find();
    let mut wire = daemon.wire()?;
    let mut rows = Vec::new();
    for (root, n, rounds) in [(&large, n_files, 15), (&small, 100, 200)] {
        let session = wire.attach(root)?;
        for query in queries() {
            let place = Place { root, session: &session, file: None };
            let label = format!("{}, {n} files", query.name);
            rows.extend(compare(
                effort.rounds(rounds),
                &label,
                &query,
                &place,
                &programs,
                &mut wire,
            )?);
        }
        rows.extend(compare_find(effort.rounds(rounds), n, root, &session, &programs, &mut wire)?);
    }
    rows.extend(measure_large_file(effort, &daemon, &programs, &mut wire)?);
    daemon.stop()?;
    Ok(rows)
}

fn measure_large_file(
    effort: Effort,
    daemon: &Daemon,
    programs: &Programs,
    wire: &mut Wire,
) -> anyhow::Result<Vec<Row>> {
    let root = daemon.repo("monolith")?;
    let bytes = if effort.quick { LARGE / 64 } else { LARGE };
    plant_large(&root.join("log.txt"), bytes)?;
    let session = wire.attach(&root)?;
    let place = Place { root: &root, session: &session, file: Some("log.txt") };
    let mut rows = Vec::new();
    for query in queries().into_iter().take(4) {
        let label = format!("{}, one file of {} MiB", query.name, bytes >> 20);
        rows.extend(compare(effort.rounds(5), &label, &query, &place, programs, wire)?);
    }
    Ok(rows)
}

/// Directory or file to search.
struct Place<'a> {
    root: &'a Path,
    session: &'a str,
    file: Option<&'a str>,
}

/// Runs the same search with all programs.
fn compare(
    rounds: usize,
    label: &str,
    query: &Query,
    place: &Place<'_>,
    programs: &Programs,
    wire: &mut Wire,
) -> anyhow::Result<Vec<Row>> {
    let mut arguments = query.arguments.clone();
    if let (Some(file), Some(object)) = (place.file, arguments.as_object_mut()) {
        object.insert("path".to_owned(), json!(file));
    }
    let line = Line::call(0, place.session, "search", &arguments);
    let tree = Plain(place.root);
    let start = place.file.unwrap_or(".");
    let mut lanes = vec![
        Lane::new("library", || {
            let mut search = Search::new(query.pattern.clone(), Stop::at(Instant::now() + LIMIT));
            search.scope.starts = vec![place.file.map(PathBuf::from).unwrap_or_default()];
            quackd_search::search(&search, &tree).map(drop).map_err(anyhow::Error::from)
        }),
        Lane::new("client to client", || wire.call(&line)),
    ];
    if let Some(rg) = &programs.rg {
        let base = ["--no-config", "-nH", "--no-heading", "--color=never"];
        let run = move |more: &[&str]| {
            let mut rg = program(&rg.path);
            rg.args(base).args(more).args(query.rg).arg(start).current_dir(place.root);
            read_all(rg)
        };
        lanes.push(Lane::new("rg", move || run(&[])).of(programs.rg.as_ref()));
        let sorted = Lane::new("rg --sort path", move || run(&["--sort", "path"]));
        lanes.push(sorted.of(programs.rg.as_ref()));
    }
    let grep = Lane::new("grep -rn", || {
        let mut grep = program("grep");
        grep.arg("-rnH").args(query.grep).arg(start).current_dir(place.root);
        read_all(grep)
    });
    lanes.push(grep.of(programs.grep.as_ref()));
    in_turn(rounds, label, lanes, "client to client", GOALS)
}

/// Lists all names of a tree with all programs.
fn compare_find(
    rounds: usize,
    n: usize,
    root: &Path,
    session: &str,
    programs: &Programs,
    wire: &mut Wire,
) -> anyhow::Result<Vec<Row>> {
    // A name that does not exist requires a walk of the whole tree.
    let line = Line::call(
        0,
        session,
        "find_files",
        &json!({"pattern": "*.nothing", "include_hidden": true}),
    );
    let tree = Plain(root);
    let mut lanes = vec![
        Lane::new("library", || {
            let name = NameRule::Minimatch("*.nothing".to_owned());
            let mut find = Find::new(Stop::at(Instant::now() + LIMIT));
            find.name = name;
            find.scope.hidden = quackd_search::Hidden::Show;
            find.scope.ignore = quackd_search::Ignore::None;
            quackd_search::find(&find, &tree).map(drop).map_err(anyhow::Error::from)
        }),
        Lane::new("client to client", || wire.call(&line)),
    ];
    if let Some(fd) = &programs.fd {
        let fd = Lane::new("fd -HI -t f", move || {
            let mut fd = program(&fd.path);
            fd.args(["-HI", "-t", "f", "--color=never", "-g", "*.nothing"]).current_dir(root);
            read_all(fd)
        });
        lanes.push(fd.of(programs.fd.as_ref()));
    }
    let find = Lane::new("find -type f", || {
        let mut find = program("find");
        find.args([".", "-type", "f", "-name", "*.nothing"]).current_dir(root);
        read_all(find)
    });
    lanes.push(find.of(programs.find.as_ref()));
    in_turn(rounds, &format!("find a name, {n} files"), lanes, "client to client", GOALS)
}

/// File access without a sandbox.
struct Plain<'a>(&'a Path);

impl Tree for Plain<'_> {
    fn path(&self) -> &Path {
        self.0
    }

    fn open_file(&self, relative: &Path) -> io::Result<File> {
        let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
        File::options().read(true).custom_flags(flags).open(self.0.join(relative))
    }

    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        let flags = nix::libc::O_NOFOLLOW | nix::libc::O_DIRECTORY;
        File::options().read(true).custom_flags(flags).open(self.0.join(relative))
    }
}

/// A pseudorandom generator with a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        // Xorshift is sufficient to vary words.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

const WORDS: &[&str] = &[
    "let", "self", "return", "value", "index", "buffer", "result", "error", "match", "state",
    "session", "worker", "frame", "length", "offset", "cursor", "pattern", "if", "else", "while",
    "for", "struct", "impl", "pub", "use", "mod", "request", "reply", "handle", "signal",
    "process", "open", "close",
];

/// Writes a line that resembles code.
fn write_line(to: &mut impl Write, numbers: &mut Numbers) -> io::Result<()> {
    let indent = usize::try_from(numbers.below(4)).unwrap_or(0) * 4;
    write!(to, "{:indent$}", "")?;
    for _ in 0..=numbers.below(9) {
        let at = usize::try_from(numbers.below(WORDS.len() as u64)).unwrap_or(0);
        write!(to, "{}_{} ", WORDS.get(at).copied().unwrap_or("x"), numbers.below(97))?;
    }
    writeln!(to, ";")
}

/// Creates files like those of a large repository: mostly short, 50 per directory, three levels deep.
pub(super) fn plant(root: &Path, n_files: usize) -> anyhow::Result<()> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for n in 0..n_files {
        let directory = root.join(format!("src/part{}/unit{}", n / 1000, n / 50 % 20));
        if n % 50 == 0 {
            fs::create_dir_all(&directory)?;
        }
        let mut file = BufWriter::new(File::create(directory.join(format!("file{n}.rs")))?);
        let n_lines = 10 + numbers.below(40) + if numbers.below(20) == 0 { 400 } else { 0 };
        for _ in 0..n_lines {
            write_line(&mut file, &mut numbers)?;
        }
        match n % 1000 {
            7 => writeln!(file, "call(needle_of_the_tree);")?,
            8 => writeln!(file, "alpha_needle(); // or beta_needle")?,
            9 => writeln!(file, "fn Resolve_Needle() {{}}")?,
            _ => {}
        }
        file.flush()?;
    }
    Ok(())
}

fn plant_large(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let mut block = Vec::new();
    while block.len() < 1 << 20 {
        write_line(&mut block, &mut numbers)?;
    }
    let mut file = File::create(path)?;
    for n in 0..bytes / block.len() as u64 {
        file.write_all(&block)?;
        if n % 100 == 99 {
            file.write_all(b"call(needle_of_the_tree); alpha_needle(); Resolve_Needle\n")?;
        }
    }
    Ok(())
}
