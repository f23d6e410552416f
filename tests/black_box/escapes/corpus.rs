//! The cases of `tests/fixtures/escape-corpus.jsonl`, and the reasons for not running some of them.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

const CORPUS: &str = include_str!("../../fixtures/escape-corpus.jsonl");

/// Additional cases in the format of the corpus.
const MORE: &str = include_str!("../../fixtures/escape-more.jsonl");

/// The list of live cases. Its header explains the format.
const LIVE: &str = include_str!("../../fixtures/escape-live.txt");

/// Accepted escapes in tier D. The header of the file explains the format.
const EXCEPTIONS: &str = include_str!("../../fixtures/escape-exceptions-D.txt");
const EXCEPTIONS_MACOS: &str = include_str!("../../fixtures/escape-exceptions-M.txt");

/// The corpus names the daemon's directory of a project differently from quackd.
const THEIRS: &str = ".agentd/";
const OURS: &str = ".quack/";

/// The case that exhausts memory.
pub(super) const TAKES_MEMORY: &str = "res-06";

/// One attempt to escape.
#[derive(Debug, Deserialize)]
pub(super) struct Case {
    pub(super) id: String,
    pub(super) class: String,
    /// Tool name of the corpus; `calls.rs` translates it.
    pub(super) tool: String,
    pub(super) args: Value,
    /// Shell script that runs before the calls, unconfined as the user.
    pub(super) setup: String,
    pub(super) must_not: Vec<Value>,
    pub(super) profile: String,
    /// Results of other sandboxes. `none` is bash alone with file tools that check no path.
    #[serde(rename = "ref")]
    pub(super) reference: BTreeMap<String, String>,
}

impl Case {
    /// True if the case uses no command, so only quackd's own tools can stop it.
    pub(super) fn is_without_commands(&self) -> bool {
        !matches!(&*self.tool, "bash" | "seq")
    }

    /// True if the case runs without write access.
    pub(super) fn is_read_only(&self) -> bool {
        self.profile == "read-only"
    }
}

/// Returns every case, in the order of the files.
pub(super) fn cases() -> Vec<Case> {
    let parse = |line: &str| serde_json::from_str(&line.replace(THEIRS, OURS)).expect("a case");
    CORPUS.lines().chain(MORE.lines()).map(parse).collect()
}

/// Returns a case that does nothing, for tests that need any case.
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

/// Reason why a case does not apply to this program, confined or not.
pub(super) fn not_applicable(id: &str) -> Option<&'static str> {
    find(NOT_APPLICABLE, id)
}

/// Reason why a case runs only with confinement.
pub(super) fn only_confined(id: &str) -> Option<&'static str> {
    find(ONLY_CONFINED, id)
}

/// Reason why a case runs only with limits on memory, processes and disk.
pub(super) fn only_with_limits(id: &str) -> Option<&'static str> {
    find(ONLY_WITH_LIMITS, id)
}

/// Configuration of the limit that stops a case. By default there is none.
pub(super) fn needs_limits(id: &str) -> &'static str {
    if id == "res-05" { "[limits]\nfile_mb = 256\n" } else { "" }
}

/// Accepted escapes in tier D: id, predicates, reason.
pub(super) fn exceptions_alone() -> Vec<(&'static str, &'static str, &'static str)> {
    exceptions(EXCEPTIONS)
}

/// Like [`exceptions_alone`], in tier M with the stand-in for `sandbox-exec`.
pub(super) fn exceptions_of_macos() -> Vec<(&'static str, &'static str, &'static str)> {
    exceptions(EXCEPTIONS_MACOS)
}

fn exceptions(text: &'static str) -> Vec<(&'static str, &'static str, &'static str)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
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

const PROXY: &str = "no command or file: network_attacks.rs tries it";
const MACOS: &str = "macOS only";

/// Cases that do not apply.
pub(super) const NOT_APPLICABLE: &[(&str, &str)] = &[
    ("path-13", MACOS),
    ("tamper-13", MACOS),
    ("env-09", "a rule for names of secrets in the workspace is not ours: who wants it hides them"),
    ("json-11", "no approval: nobody is asked before a command"),
    ("proxy-01", PROXY),
    ("proxy-02", PROXY),
    ("proxy-03", PROXY),
    ("proxy-04", PROXY),
    ("proxy-07", PROXY),
    ("proxy-09", PROXY),
    ("proxy-11", PROXY),
    ("proxy-13", PROXY),
    ("proxy-15", PROXY),
    ("proxy-16", PROXY),
    ("proxy-18", PROXY),
];

/// Cases that would harm the machine of the developer if confinement failed.
pub(super) const ONLY_CONFINED: &[(&str, &str)] = &[
    ("proc-11", "kills every process of the user"),
    ("proc-22", "leaves a unit or a crontab with whoever runs the tests"),
];

/// Cases that only a limit stops.
pub(super) const ONLY_WITH_LIMITS: &[(&str, &str)] = &[
    ("res-05", "fills the disk"),
    ("res-06", "takes all memory"),
    ("res-07", "takes all inodes"),
    ("res-10", "takes all processors"),
];

/// Escapes that no confinement can prevent: id, predicates that become true, and the
/// countermeasure.
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
    ("more-03", "host_exec", "a rebase that is under way: who continues it runs what it says"),
];

/// Expected result of the positive control.
#[derive(Debug)]
pub(super) struct LiveList {
    /// Cases that must escape here.
    pub(super) firm: Vec<&'static str>,
    /// Cases that may escape: not every machine has the programs that they need.
    pub(super) depends: Vec<&'static str>,
}

impl LiveList {
    /// Parses the list. `has_program` reports whether the machine has a program.
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
