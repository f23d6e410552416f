//! The cases as they stand in `tests/fixtures/escape-corpus.jsonl`, and which of them are not run, why.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

const CORPUS: &str = include_str!("../../fixtures/escape-corpus.jsonl");

/// Cases in the same form that the corpus does not have.
const MORE: &str = include_str!("../../fixtures/escape-more.jsonl");

/// The live list: see its head.
const LIVE: &str = include_str!("../../fixtures/escape-live.txt");

/// What may get out in tier D: see its head.
const EXCEPTIONS: &str = include_str!("../../fixtures/escape-exceptions-D.txt");

/// The daemon's own directory of a project, as the corpus has it and as it is here.
const THEIRS: &str = ".agentd/";
const OURS: &str = ".quack/";

/// The case that takes all memory.
pub(super) const TAKES_MEMORY: &str = "res-06";

/// One attempt to get out.
#[derive(Debug, Deserialize)]
pub(super) struct Case {
    pub(super) id: String,
    pub(super) class: String,
    /// A name that the corpus gives the tool; see `calls.rs`.
    pub(super) tool: String,
    pub(super) args: Value,
    /// A shell script that runs before, as the user and not confined.
    pub(super) setup: String,
    pub(super) must_not: Vec<Value>,
    pub(super) profile: String,
    /// What other sandboxes made of it; `none` is bash alone and file tools that look at no path.
    #[serde(rename = "ref")]
    pub(super) reference: BTreeMap<String, String>,
}

impl Case {
    /// Whether it is tried without any command, so that what holds it must be a tool of ours.
    pub(super) fn is_without_commands(&self) -> bool {
        !matches!(&*self.tool, "bash" | "seq")
    }

    /// Whether nothing may be written in it.
    pub(super) fn is_read_only(&self) -> bool {
        self.profile == "read-only"
    }
}

/// Every case, in the order of the files.
pub(super) fn cases() -> Vec<Case> {
    let parse = |line: &str| serde_json::from_str(&line.replace(THEIRS, OURS)).expect("a case");
    CORPUS.lines().chain(MORE.lines()).map(parse).collect()
}

/// A case that does nothing, for what is not about any.
pub(super) fn any() -> Case {
    Case {
        id: "any".to_owned(),
        class: "none".to_owned(),
        tool: "bash".to_owned(),
        args: Value::Null,
        setup: String::new(),
        must_not: Vec::new(),
        profile: "workspace-write".to_owned(),
        reference: BTreeMap::new(),
    }
}

/// Why a case says nothing about this program, confined or not.
pub(super) fn not_applicable(id: &str) -> Option<&'static str> {
    find(NOT_APPLICABLE, id)
}

/// Why a case is not run where nothing stops it.
pub(super) fn only_confined(id: &str) -> Option<&'static str> {
    find(ONLY_CONFINED, id)
}

/// Why a case is run only where memory, processes and disk are limited.
pub(super) fn only_with_limits(id: &str) -> Option<&'static str> {
    find(ONLY_WITH_LIMITS, id)
}

/// The part of the configuration that limits what a case is about. Without it nothing does.
pub(super) fn needs_limits(id: &str) -> &'static str {
    if id == "res-05" { "[limits]\nfile_mb = 256\n" } else { "" }
}

/// What may get out in tier D: the id, the predicates, the reason.
pub(super) fn exceptions_alone() -> Vec<(&'static str, &'static str, &'static str)> {
    let lines = EXCEPTIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &'static str| {
        let (head, why) = line.split_once(": ").expect("a reason after the predicates");
        let (id, kinds) = head.split_once(' ').expect("predicates after the id");
        (id, kinds, why)
    };
    lines.map(parse).collect()
}

fn find(table: &[(&str, &'static str)], id: &str) -> Option<&'static str> {
    table.iter().find(|(found, _)| *found == id).map(|(_, why)| *why)
}

const NO_PROXY: &str = "no proxy: the network of a worker is on or off";
const MACOS: &str = "macOS only";

/// Cases that do not apply.
pub(super) const NOT_APPLICABLE: &[(&str, &str)] = &[
    ("path-13", MACOS),
    ("tamper-13", MACOS),
    ("env-09", "a rule for names of secrets in the workspace is not ours: who wants it hides them"),
    ("json-11", "no approval: nobody is asked before a command"),
    ("proxy-01", NO_PROXY),
    ("proxy-02", NO_PROXY),
    ("proxy-03", NO_PROXY),
    ("proxy-04", NO_PROXY),
    ("proxy-07", NO_PROXY),
    ("proxy-09", NO_PROXY),
    ("proxy-11", NO_PROXY),
    ("proxy-13", NO_PROXY),
    ("proxy-15", NO_PROXY),
    ("proxy-16", NO_PROXY),
    ("proxy-18", NO_PROXY),
];

/// Cases that would harm the machine of whoever runs the tests if nothing held them.
pub(super) const ONLY_CONFINED: &[(&str, &str)] = &[
    ("proc-11", "kills every process of the user"),
    ("proc-22", "leaves a unit or a crontab with whoever runs the tests"),
];

/// Cases that are held by a limit and by nothing else.
pub(super) const ONLY_WITH_LIMITS: &[(&str, &str)] = &[
    ("res-05", "fills the disk"),
    ("res-06", "takes all memory"),
    ("res-07", "takes all inodes"),
    ("res-10", "takes all processors"),
];

/// What no confinement can foresee, with the predicates that become true, and what there is instead.
pub(super) const NOT_BY_THE_KERNEL: &[(&str, &str, &str)] = &[
    (
        "proc-11",
        "worker_crash",
        "a command may end its own worker: the call says so, the next worker starts",
    ),
    (
        "prot-12",
        "created,created",
        "files for other programs: refused to the file tools, told by the audit",
    ),
    (
        "more-01",
        "host_exec",
        "a submodule that is new, with settings that `git status` above it runs: told by the audit",
    ),
    (
        "more-02",
        "host_exec",
        "a worktree that is new and leads to other settings: told by the audit",
    ),
    ("more-03", "host_exec", "a rebase that is under way: who continues it runs what it says"),
    ("prot-20", "host_exec", "a repository that plain files make: told by the audit"),
];

/// What the positive control must find.
#[derive(Debug)]
pub(super) struct LiveList {
    /// Cases that must be violated here.
    pub(super) firm: Vec<&'static str>,
    /// Cases that may be: what they need is not on every machine.
    pub(super) depends: Vec<&'static str>,
}

impl LiveList {
    /// Reads the list for a machine on which programs are found, or not.
    pub(super) fn read(has_program: impl Fn(&str) -> bool) -> Self {
        let (mut firm, mut depends) = (Vec::new(), Vec::new());
        for line in LIVE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(rest) = line.strip_prefix("? ") {
                let (id, why) = rest.split_once(": ").expect("a reason after the id");
                assert!(!why.is_empty(), "{line}");
                depends.push(id);
            } else if let Some((id, programs)) = line.split_once(" needs ") {
                let has_all = programs.split(' ').all(&has_program);
                if has_all { &mut firm } else { &mut depends }.push(id);
            } else {
                firm.push(line);
            }
        }
        Self { firm, depends }
    }
}
