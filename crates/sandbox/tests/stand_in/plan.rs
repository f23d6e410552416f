//! The enforcement of a profile of macOS on Linux. The interpreter decides about each path that the profile names, and
//! about each entry of the session's directories. Reads directories, changes nothing.
//!
//! Stricter than the profile: a directory whose rule does not contain its entries cannot be listed, and no name outside of
//! the session's directories has another spelling. Weaker: a forbidden name that does not exist yet can be created.

use super::profile::{Form, Interpreter, Object, local_port, parse, parts, with_parameters};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Most entries of the session's directories.
const MAX_ENTRIES: usize = 100_000;

/// Name of an entry that no rule names: the rights to it are those inside of its directory.
const PROBE: &str = "stand-in probe";

/// Operations that are enforced.
const ENFORCED: [&str; 13] = [
    "default",
    "file-ioctl",
    "file-read*",
    "file-read-metadata",
    "file-write*",
    "file-write-create",
    "file-write-data",
    "file-write-unlink",
    "network*",
    "network-outbound",
    "process-exec",
    "process-fork",
    "signal",
];

/// Operations without a counterpart on Linux.
const ONLY_MACOS: [&str; 6] = [
    "mach-lookup",
    "process-info*",
    "pseudo-tty",
    "sysctl-read",
    "system-socket",
    "user-preference-read",
];

/// Directories of Linux with their names in profiles.
const NAMES: [(&str, &str); 3] =
    [("/etc", "/private/etc"), ("/lib", "/usr/lib"), ("/lib64", "/usr/lib64")];

/// A set of rights to a file, or to the entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    const NONE: Self = Self(0);
    pub(crate) const READ: Self = Self(1);
    pub(crate) const CHANGE: Self = Self(2);
    pub(crate) const CREATE: Self = Self(4);
    pub(crate) const UNLINK: Self = Self(8);
    pub(crate) const RUN: Self = Self(16);
    pub(crate) const CONTROL: Self = Self(32);
    const WRITE: Self = Self(2 + 4 + 8);

    pub(crate) fn has(self, right: Self) -> bool {
        self.0 & right.0 == right.0
    }

    fn has_any(self, right: Self) -> bool {
        self.0 & right.0 != 0
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A mount that takes rights away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mask {
    /// Nothing of it can be read.
    Hidden,
    ReadOnly,
    /// It cannot be renamed or removed.
    Pinned,
}

/// Network of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Network {
    None,
    /// These ports of 127.0.0.1.
    Ports(Vec<u16>),
    All,
}

/// Processes that the command may signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signals {
    None,
    SameSandbox,
    All,
}

/// Enforcement of a profile.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Paths with the rights to them and to everything inside.
    pub(crate) grants: Vec<(PathBuf, Rights)>,
    /// Directories that can be written.
    pub(crate) writable: Vec<PathBuf>,
    /// Exceptions, each after those that contain it.
    pub(crate) masks: Vec<(PathBuf, Mask)>,
    /// Directories inside of hidden ones that are not hidden.
    pub(crate) kept: Vec<PathBuf>,
    pub(crate) network: Network,
    /// Whether the command may connect to Unix sockets.
    pub(crate) unix_sockets: bool,
    pub(crate) signals: Signals,
}

/// A parsed profile.
struct Profile {
    rules: Vec<Form>,
}

impl Profile {
    fn allows(&self, operation: &str, object: Object<'_>) -> Result<bool, String> {
        Interpreter { rules: &self.rules }.allows(operation, object)
    }

    /// Fails if a rule has an operation that this file does not know.
    fn check(&self) -> Result<(), String> {
        for rule in &self.rules {
            let Form::List(words) = rule else { return Err(format!("no rule: {rule:?}")) };
            let [Form::Word(verb), words @ ..] = words.as_slice() else {
                return Err(format!("no rule: {rule:?}"));
            };
            let (operations, _) = parts(words);
            for operation in operations {
                let is_known = |name: &&str| matches!(operation, Form::Word(word) if word == name);
                if verb != "version" && !ENFORCED.iter().chain(&ONLY_MACOS).any(is_known) {
                    return Err(format!("unknown operation: {operation:?}"));
                }
            }
        }
        Ok(())
    }

    /// Rights to a path.
    fn rights(&self, path: &Path) -> Result<Rights, String> {
        let name = name_in_profiles(path);
        let Some(name) = name.to_str() else { return Ok(Rights::NONE) };
        let mut rights = Rights::NONE;
        for (operation, right) in [
            ("file-read-data", Rights::READ),
            ("file-write-data", Rights::CHANGE),
            ("file-write-create", Rights::CREATE),
            ("file-write-unlink", Rights::UNLINK),
            ("file-ioctl", Rights::CONTROL),
            ("process-exec", Rights::RUN),
        ] {
            if self.allows(operation, Object::Path(name))? {
                rights.0 |= right.0;
            }
        }
        // A program has to be read before it runs.
        Ok(if rights.has(Rights::READ) { rights } else { rights.without(Rights::RUN) })
    }

    /// Rights to the entries of a directory that no rule names.
    fn rights_inside(&self, directory: &Path) -> Result<Rights, String> {
        self.rights(&directory.join(PROBE))
    }

    fn network(&self) -> Result<Network, String> {
        let outbound = |object| self.allows("network-outbound", object);
        let elsewhere = outbound(Object::Tcp("192.0.2.1", 443))?;
        let others = [
            outbound(Object::Udp)?,
            self.allows("network-bind", Object::Tcp("127.0.0.1", 1))?,
            self.allows("network-inbound", Object::Tcp("127.0.0.1", 1))?,
            self.allows("system-socket", Object::None)?,
        ];
        if others.iter().any(|other| *other != elsewhere) {
            return Err("a part of the network cannot be allowed alone".to_owned());
        }
        if elsewhere {
            return Ok(Network::All);
        }
        let mut ports = Vec::new();
        for port in self.texts().iter().filter_map(|text| local_port(text)) {
            if outbound(Object::Tcp("127.0.0.1", port))? {
                ports.push(port);
            }
        }
        Ok(if ports.is_empty() { Network::None } else { Network::Ports(ports) })
    }

    fn signals(&self) -> Result<Signals, String> {
        let own = self.allows("signal", Object::OwnProcess)?;
        Ok(match (own, self.allows("signal", Object::OtherProcess)?) {
            (false, false) => Signals::None,
            (true, false) => Signals::SameSandbox,
            (true, true) => Signals::All,
            (false, true) => return Err("signals to other processes only".to_owned()),
        })
    }

    /// Texts of all filters.
    fn texts(&self) -> BTreeSet<String> {
        let mut texts = BTreeSet::new();
        let mut rest: Vec<&Form> = self.rules.iter().collect();
        while let Some(form) = rest.pop() {
            match form {
                Form::Text(text) => drop(texts.insert(text.clone())),
                Form::List(words) => rest.extend(words),
                _ => {}
            }
        }
        texts
    }
}

/// The name that a profile has for a path.
fn name_in_profiles(path: &Path) -> PathBuf {
    let mut names = NAMES.iter();
    let found = names.find_map(|(ours, theirs)| {
        path.strip_prefix(ours).ok().map(|rest| Path::new(theirs).join(rest))
    });
    found.unwrap_or_else(|| path.to_owned())
}

/// The paths that a profile's name stands for.
fn paths_of(name: &str) -> Vec<PathBuf> {
    let name = Path::new(name);
    let others = NAMES.iter().filter_map(|(ours, theirs)| {
        name.strip_prefix(theirs).ok().map(|rest| Path::new(ours).join(rest))
    });
    // `/lib` is in `/usr/lib` only where the latter is a whole rule, as `/usr` is.
    let all = NAMES.iter().filter(|(_, theirs)| Path::new(theirs).starts_with(name));
    let all = all.map(|(ours, _)| PathBuf::from(ours));
    std::iter::once(name.to_owned()).chain(others).chain(all).collect()
}

impl Plan {
    /// Reads the profile and the directories that it names.
    ///
    /// # Errors
    /// A rule is unknown, or Linux cannot enforce it.
    pub(crate) fn new(text: &str, parameters: &BTreeMap<String, String>) -> Result<Self, String> {
        let values = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let values: BTreeMap<&str, &str> = values.collect();
        let rules = parse(text)?.into_iter().map(|rule| with_parameters(rule, &values));
        let profile = Profile { rules: rules.collect::<Result<_, _>>()? };
        profile.check()?;
        for (operation, object) in
            [("process-fork", Object::None), ("file-read-metadata", Object::Path("/x"))]
        {
            if !profile.allows(operation, object)? {
                return Err(format!("{operation} cannot be forbidden"));
            }
        }
        let mut plan = Self {
            grants: Vec::new(),
            writable: Vec::new(),
            masks: Vec::new(),
            kept: Vec::new(),
            network: profile.network()?,
            unix_sockets: profile.allows("network-outbound", Object::UnixSocket("/x"))?,
            signals: profile.signals()?,
        };
        let own = parameters.iter().filter(|(name, _)| !name.starts_with("TOOLS"));
        let own: Vec<PathBuf> = own.map(|(_, value)| value.into()).collect();
        let mut inside: BTreeMap<PathBuf, Rights> = BTreeMap::new();
        for path in nodes(&profile, &own)? {
            let above = path.ancestors().skip(1).find_map(|above| inside.get(above));
            let above = above.copied().unwrap_or(Rights::NONE);
            let within = plan.add(&profile, &path, above)?;
            inside.insert(path, within);
        }
        Ok(plan)
    }

    /// Adds a path. `above` are the rights that it has without. Returns the rights inside of it.
    fn add(&mut self, profile: &Profile, path: &Path, above: Rights) -> Result<Rights, String> {
        let refusal = |why: &str| Err(format!("{}: {why}", path.display()));
        let own = profile.rights(path)?;
        let is_directory = path.is_dir();
        let within = if is_directory { profile.rights_inside(path)? } else { own };
        let lost = above.without(within);
        let gained = within.without(above);
        if path.is_symlink() {
            // The target has its own rights.
            let is_lost = above.without(own) != Rights::NONE;
            return if is_lost { refusal("a link cannot be forbidden") } else { Ok(above) };
        }
        if gained != Rights::NONE {
            let masks = self.masks.iter().filter(|(mask, _)| path.starts_with(mask));
            let mut masks = masks.map(|(_, kind)| kind).filter(|kind| **kind != Mask::Pinned);
            match masks.next_back() {
                Some(Mask::Hidden) if is_directory => self.kept.push(path.to_owned()),
                Some(_) => return refusal("cannot be allowed inside of a forbidden directory"),
                None => {}
            }
            self.grants.push((path.to_owned(), within));
            if within.has(Rights::CREATE) && is_directory {
                self.writable.push(path.to_owned());
            }
        }
        let mask = if lost.has(Rights::READ) {
            if own.has_any(Rights::READ) || within.has_any(Rights::WRITE) {
                return refusal("cannot be forbidden in part");
            }
            Mask::Hidden
        } else if lost.has_any(Rights::WRITE) {
            if within.has_any(Rights::WRITE) && is_directory {
                return refusal("writing cannot be forbidden in part");
            }
            if within.has_any(Rights::CHANGE) { Mask::Pinned } else { Mask::ReadOnly }
        } else if above.without(own).has_any(Rights::WRITE) {
            Mask::Pinned
        } else if lost.has(Rights::RUN) {
            return refusal("running cannot be forbidden");
        } else {
            return Ok(within);
        };
        self.masks.push((path.to_owned(), mask));
        Ok(within)
    }
}

/// The existing paths that a profile names, and the entries of the session's directories with other rights than the
/// entries next to them.
fn nodes(profile: &Profile, own: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    let texts = profile.texts();
    let named = texts.iter().filter(|text| text.starts_with('/')).flat_map(|text| paths_of(text));
    let mut nodes: BTreeSet<PathBuf> =
        named.filter(|path| path.symlink_metadata().is_ok()).collect();
    let mut directories: Vec<PathBuf> = own.iter().filter(|path| path.is_dir()).cloned().collect();
    let mut seen = BTreeSet::new();
    while let Some(directory) = directories.pop() {
        let usual = profile.rights_inside(&directory)?;
        if usual == Rights::NONE || !seen.insert(directory.clone()) {
            continue;
        }
        if MAX_ENTRIES < seen.len() {
            return Err(format!("{}: too many directories", directory.display()));
        }
        let Ok(entries) = directory.read_dir() else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_usual = profile.rights(&path)? == usual
                && (!is_directory || profile.rights_inside(&path)? == usual);
            if !is_usual {
                nodes.insert(path.clone());
            }
            if is_directory {
                directories.push(path);
            }
        }
    }
    Ok(nodes)
}
