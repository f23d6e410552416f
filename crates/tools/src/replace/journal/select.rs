//! Selects the changes that an undo takes back, among the replacements in the journal and the single changes in its log.

use super::Journal;
use super::change_log::{Before, LoggedChange};
use super::manifest::{FileRecord, Manifest};
use super::report::UndoError;
use super::undo_id::UndoId;
use quackd_protocol::worker::{CallOrigin, TurnOrigin};
use quackd_search::replace::Digest;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Maximum number of older entries that are named if the last one cannot be undone.
const MAX_OLDER: usize = 5;

/// Selection of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// The newest replacement or change that is not undone, or was redone.
    Last,
    /// The replacement, change or undo with this id. Undoing an undo redoes its changes.
    Id(String),
    /// Everything that one call changed; its id is that of the journal of calls.
    Call(String),
    /// Everything that one turn of the agent changed: the newest turn with this number, or the newest with changes that
    /// are not undone.
    Turn(Option<u64>),
}

/// Changes that an undo takes back.
pub(super) struct Selected {
    /// Its id, or its call or turn, for answers.
    pub(super) what: String,
    /// The changes of files, oldest first.
    pub(super) steps: Vec<Undoable>,
    pub(super) members: Members,
    /// Number of undos of this content: 0 for a change, 1 for its undo.
    pub(super) depth: u32,
    /// See [`super::Undone::older`].
    pub(super) older: Vec<UndoId>,
}

/// The selected entries, and the numbers and files of the selected changes.
#[derive(Default)]
pub(super) struct Members {
    pub(super) entries: Vec<UndoId>,
    pub(super) changes: Vec<(u64, PathBuf)>,
}

/// A change of one file that can be undone.
pub(super) struct Undoable {
    pub(super) path: PathBuf,
    /// Digest of the original: `Some(None)` if the file did not exist, `None` if the original is not kept.
    pub(super) before: Option<Option<Digest>>,
    /// Digest of the content after the change. `None`: the file was deleted.
    pub(super) after: Option<Digest>,
    /// Digest of the content if the change was done partly.
    pub(super) torn: Option<Digest>,
    /// Size of the original in bytes.
    pub(super) len: u64,
    pub(super) source: Source,
}

/// Place of an original.
pub(super) enum Source {
    Entry(UndoId, FileRecord),
    Log(LoggedChange),
}

/// A replacement, an undo, or a single change.
pub(super) enum Unit {
    Entry(UndoId, Manifest),
    Change(LoggedChange),
}

impl Unit {
    pub(super) fn id(&self) -> &UndoId {
        match self {
            Self::Entry(id, _) => id,
            Self::Change(change) => &change.id,
        }
    }

    fn undone_by(&self) -> Option<&String> {
        match self {
            Self::Entry(_, manifest) => manifest.undone_by.as_ref(),
            Self::Change(change) => change.undone_by.as_ref(),
        }
    }

    fn depth(&self) -> u32 {
        match self {
            Self::Entry(_, manifest) => manifest.began.depth,
            Self::Change(_) => 0,
        }
    }

    fn origin(&self) -> &CallOrigin {
        match self {
            Self::Entry(_, manifest) => &manifest.began.origin,
            Self::Change(change) => &change.record.origin,
        }
    }

    /// Whether the originals are stored.
    fn has_originals(&self) -> bool {
        match self {
            Self::Entry(_, manifest) => manifest.began.has_originals,
            Self::Change(change) => change.record.before != Before::NotKept,
        }
    }

    /// Whether it is a change or was redone, and is not undone.
    fn is_in_force(&self) -> bool {
        self.depth().is_multiple_of(2) && self.undone_by().is_none()
    }

    pub(super) fn add_to(self, members: &mut Members, steps: &mut Vec<Undoable>) {
        match self {
            Self::Entry(id, manifest) => {
                members.entries.push(id.clone());
                steps.extend(undoables(&id, manifest));
            }
            Self::Change(change) => {
                members.changes.push((change.record.number, change.record.path.clone()));
                steps.push(Undoable::of(change));
            }
        }
    }
}

impl Undoable {
    fn of(change: LoggedChange) -> Self {
        Self {
            path: change.record.path.clone(),
            before: match change.record.before {
                Before::Absent => Some(None),
                Before::Kept(digest) => Some(Some(digest)),
                Before::NotKept => None,
            },
            after: change.record.after,
            torn: None,
            len: change.record.len,
            source: Source::Log(change),
        }
    }
}

/// Returns the steps of an entry.
fn undoables(id: &UndoId, manifest: Manifest) -> Vec<Undoable> {
    let Manifest { steps, torn, .. } = manifest;
    // A forged entry may name a file twice.
    let mut seen = BTreeSet::new();
    let steps = steps.into_iter().enumerate().filter(|(_, step)| seen.insert(step.path.clone()));

    let undoable = |(number, step): (usize, FileRecord)| Undoable {
        path: step.path.clone(),
        before: Some(step.before),
        after: step.after,
        torn: torn.get(&number).copied(),
        len: step.len,
        source: Source::Entry(id.clone(), step),
    };
    steps.map(undoable).collect()
}

/// Returns everything in the journal that no call is writing, oldest first.
pub(super) fn units_blocking(journal: &Journal) -> Vec<Unit> {
    let entries = journal.entries_blocking();
    let entries = entries.into_iter().map(|(id, manifest)| Unit::Entry(id, manifest));
    let mut units: Vec<Unit> = entries.collect();
    units.extend(journal.changes_blocking().into_iter().map(Unit::Change));
    // Entries and changes are numbered together.
    units.sort_by(|one, other| one.id().cmp(other.id()));
    units
}

/// Returns the changes to undo.
pub(super) fn select(journal: &Journal, which: &Which) -> Result<Selected, UndoError> {
    let units = units_blocking(journal);
    match which {
        Which::Last => last(units),
        Which::Id(text) => by_id(journal, units, text),
        Which::Call(call) => {
            let is_call = selects(&units, which);
            group(units, format!("call {call}"), is_call)
        }
        Which::Turn(number) => {
            let Some(turn) = newest_turn(&units, *number) else {
                return Err(match number {
                    Some(number) => UndoError::UnknownGroup(format!("turn {number}")),
                    None => UndoError::NoTurn,
                });
            };
            let is_turn = selects(&units, which);
            group(units, format!("turn {}", turn.number), is_turn)
        }
    }
}

/// Returns a function that decides whether a unit is part of the selection, also if it is undone.
pub(super) fn selects(units: &[Unit], which: &Which) -> Box<dyn Fn(&Unit) -> bool> {
    match which {
        Which::Last => {
            let last = units.iter().rev().find(|unit| unit.is_in_force());
            let last = last.map(|unit| unit.id().clone());
            Box::new(move |unit| Some(unit.id()) == last.as_ref())
        }
        Which::Id(text) => {
            let id = UndoId::parse(text);
            Box::new(move |unit| Some(unit.id()) == id.as_ref())
        }
        Which::Call(call) => {
            let call = call.clone();
            Box::new(move |unit| !call.is_empty() && unit.origin().call == call)
        }
        Which::Turn(number) => {
            let turn = newest_turn(units, *number);
            Box::new(move |unit| turn.is_some() && unit.origin().turn == turn)
        }
    }
}

fn last(mut units: Vec<Unit>) -> Result<Selected, UndoError> {
    units.retain(Unit::is_in_force);
    let last = units.pop().ok_or(UndoError::Nothing)?;
    let older = units.into_iter().rev().filter(Unit::has_originals);
    let older = older.map(|unit| unit.id().clone()).take(MAX_OLDER).collect();

    if !last.has_originals() {
        return Err(UndoError::LastHasNoOriginals { id: last.id().clone(), older });
    }
    Ok(Selected { older, ..one(last) })
}

fn by_id(journal: &Journal, units: Vec<Unit>, text: &str) -> Result<Selected, UndoError> {
    let id = UndoId::parse(text).ok_or_else(|| UndoError::Unknown(text.to_owned()))?;
    // `units` has no entry that a call is writing, so it would look unknown below.
    if journal.is_active_blocking(&id) {
        return Err(UndoError::Running(id));
    }

    let unit = units.into_iter().find(|unit| *unit.id() == id);
    let unit = unit.ok_or_else(|| UndoError::Unknown(text.to_owned()))?;
    if let Some(by) = unit.undone_by() {
        return Err(UndoError::AlreadyUndone { what: id.to_string(), by: by.clone() });
    }
    if !unit.has_originals() {
        return Err(UndoError::NoOriginals(id));
    }
    Ok(one(unit))
}

fn one(unit: Unit) -> Selected {
    let (what, depth) = (unit.id().to_string(), unit.depth());
    let (mut members, mut steps) = (Members::default(), Vec::new());
    unit.add_to(&mut members, &mut steps);
    Selected { what, steps, members, depth, older: Vec::new() }
}

/// Selects the changes of a call or a turn that are not undone.
fn group(
    units: Vec<Unit>,
    what: String,
    is_member: impl Fn(&Unit) -> bool,
) -> Result<Selected, UndoError> {
    let (mut members, mut steps) = (Members::default(), Vec::new());
    let mut undone_by = None;

    for unit in units.into_iter().filter(|unit| unit.depth() == 0 && is_member(unit)) {
        match unit.undone_by() {
            Some(by) => undone_by = Some(by.clone()),
            // A single change without its content is reported with the others. An entry has no content at all.
            None if !unit.has_originals() && matches!(unit, Unit::Entry(..)) => {
                return Err(UndoError::NoOriginals(unit.id().clone()));
            }
            None => unit.add_to(&mut members, &mut steps),
        }
    }

    match (steps.is_empty(), undone_by) {
        (false, _) => Ok(Selected { what, steps, members, depth: 0, older: Vec::new() }),
        (true, Some(by)) => Err(UndoError::AlreadyUndone { what, by }),
        (true, None) => Err(UndoError::UnknownGroup(what)),
    }
}

/// Returns the newest turn with this number, or the newest one with changes that are not undone.
fn newest_turn(units: &[Unit], number: Option<u64>) -> Option<TurnOrigin> {
    let mut newest_first = units.iter().rev().filter(|unit| unit.depth() == 0);
    let turn = newest_first.find_map(|unit| {
        let turn = unit.origin().turn.as_ref()?;
        let is_match = match number {
            Some(number) => turn.number == number,
            None => unit.undone_by().is_none(),
        };
        is_match.then_some(turn)
    });
    turn.cloned()
}
