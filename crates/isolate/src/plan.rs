//! Decides what is done with each change of the source. Reads files, and changes none.

use crate::changes::Change;
use crate::error::{IsolateError, OnFile as _};
use crate::manifest::{MAX_MERGED_BYTES, Texts};
use crate::node::{ContentHash, Node};
use crate::tree::{Direction, Sides, Tree};
use quackd_protocol::isolate::{ApplyOutcome, IsolatedChoice, MergeRule};
use quackd_sandbox::protected_name;
use rustix::fs::FileType;
use std::io::Read as _;
use std::path::{Component, Path};

/// Maximum size of all merged texts of one plan, in bytes. They are in memory.
const MAX_ALL_MERGED: u64 = 64 * 1024 * 1024;

/// The decision about one change.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) outcome: ApplyOutcome,
    pub(crate) reason: Option<String>,
    /// New state of the target. Only for outcomes that write.
    pub(crate) after: Option<Node>,
    /// Content of a merged file. Otherwise the source has it.
    pub(crate) content: Option<Vec<u8>>,
}

impl Decision {
    fn simple(outcome: ApplyOutcome) -> Self {
        Self { outcome, reason: None, after: None, content: None }
    }

    fn because(outcome: ApplyOutcome, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::simple(outcome) }
    }

    fn taken(source: Option<&Node>) -> Self {
        Self { after: source.cloned(), ..Self::simple(ApplyOutcome::Taken) }
    }

    pub(crate) fn is_conflict(&self) -> bool {
        self.outcome == ApplyOutcome::Conflict
    }

    /// Whether the file is written.
    pub(crate) fn writes(&self) -> bool {
        matches!(self.outcome, ApplyOutcome::Taken | ApplyOutcome::Merged | ApplyOutcome::Marked)
    }
}

/// Reads contents and makes decisions.
pub(crate) struct Planner<'a> {
    pub(crate) sides: Sides<'a>,
    pub(crate) texts: &'a mut Texts,
    pub(crate) choice: &'a IsolatedChoice,
    pub(crate) merge: Option<MergeRule>,
    pub(crate) merged_bytes: u64,
}

impl Planner<'_> {
    pub(crate) fn decide(&mut self, change: &Change) -> Result<Decision, IsolateError> {
        let Change { path, common, source, target, .. } = change;
        // The copy may have every name that the workspace has.
        if self.sides.direction == Direction::Apply
            && let Some(reason) = protection(path, source.as_ref(), self.choice)
        {
            return Ok(Decision::because(ApplyOutcome::Protected, reason));
        }

        if source == target {
            return Ok(Decision::simple(ApplyOutcome::Same));
        }

        if [common, source, target].into_iter().flatten().any(|node| *node == Node::Other) {
            let reason = "it is a directory, a special file or larger than 1 GiB on one side";
            return Ok(Decision::because(ApplyOutcome::Left, reason));
        }

        if let Some(reason) = self.obstacle(path)? {
            return Ok(Decision::because(ApplyOutcome::Conflict, reason));
        }

        // Only the source has changed.
        if target == common {
            return Ok(Decision::taken(source.as_ref()));
        }

        // The workspace is `ours` in both directions.
        let is_taken = match self.sides.direction {
            Direction::Apply => MergeRule::Theirs,
            Direction::Refresh => MergeRule::Ours,
        };

        let conflict = |reason: &str| Decision::because(ApplyOutcome::Conflict, reason);
        Ok(match (self.merged(change)?, self.merge) {
            (Merged::Clean(content), _) => decision(ApplyOutcome::Merged, content, change),
            (_, Some(rule)) if rule == is_taken => Decision::taken(source.as_ref()),
            (Merged::Conflicting(content), Some(MergeRule::Markers)) => {
                decision(ApplyOutcome::Marked, content, change)
            }
            (Merged::Conflicting(_), None) => conflict("changed on both sides, in the same lines"),
            (Merged::NoText, Some(MergeRule::Markers)) => {
                conflict("changed on both sides, and is no text that can be merged")
            }
            (_, Some(_)) => Decision::because(ApplyOutcome::Left, "changed on both sides"),
            (Merged::NoText, None) => conflict("changed on both sides"),
        })
    }

    /// Returns the reason if a file is in the place of a directory of the path.
    fn obstacle(&self, path: &Path) -> Result<Option<String>, IsolateError> {
        for above in path.ancestors().skip(1).filter(|above| above.file_name().is_some()) {
            match self.sides.target.stat(above).on("read", above)? {
                Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    return Ok(None);
                }
                Some(_) => {
                    let side = match self.sides.direction {
                        Direction::Apply => "the workspace",
                        Direction::Refresh => "the copy",
                    };
                    return Ok(Some(format!("{} is no directory in {side}", above.display())));
                }
                None => {}
            }
        }
        Ok(None)
    }

    /// Merges the changes of both sides.
    fn merged(&mut self, change: &Change) -> Result<Merged, IsolateError> {
        let (
            Some(Node::File { hash: of_source, .. }),
            Some(Node::File { hash: of_target, .. }),
            Some(span),
        ) = (&change.source, &change.target, change.text)
        else {
            return Ok(Merged::NoText);
        };

        let common = self.texts.read(span)?;
        let source = text_of(self.sides.source, &change.path)?;
        let target = text_of(self.sides.target, &change.path)?;
        let (Some(source), Some(target)) = (source, target) else { return Ok(Merged::NoText) };
        // The decision must be about the contents that were compared, whose digest the user may have seen.
        if ContentHash::of(&source) != *of_source || ContentHash::of(&target) != *of_target {
            return Err(IsolateError::ChangedNow(change.path.clone()));
        }

        self.merged_bytes += (source.len() + target.len()) as u64;
        if MAX_ALL_MERGED < self.merged_bytes {
            return Ok(Merged::NoText);
        }

        // The words of conflict markers name the workspace first, in both directions.
        let (ours, theirs) = match self.sides.direction {
            Direction::Apply => (&target, &source),
            Direction::Refresh => (&source, &target),
        };
        Ok(match diffy::merge_bytes(&common, ours, theirs) {
            Ok(content) => Merged::Clean(content),
            Err(content) => Merged::Conflicting(content),
        })
    }
}

/// Result of a merge.
enum Merged {
    Clean(Vec<u8>),
    /// With conflict markers.
    Conflicting(Vec<u8>),
    /// A side is no text, or too large.
    NoText,
}

fn decision(outcome: ApplyOutcome, content: Vec<u8>, change: &Change) -> Decision {
    let is_executable =
        |node: &Option<Node>| matches!(node, Some(Node::File { is_executable: true, .. }));
    // The right to execute is that of the side which changed it.
    let (common, source) = (is_executable(&change.common), is_executable(&change.source));
    let chosen = if common == source { is_executable(&change.target) } else { source };
    let after = Node::File {
        hash: ContentHash::of(&content),
        len: content.len() as u64,
        is_executable: chosen,
    };
    Decision { after: Some(after), content: Some(content), ..Decision::simple(outcome) }
}

/// Reads a text that can be merged. `None` for other content.
pub(crate) fn text_of(tree: &Tree, path: &Path) -> Result<Option<Vec<u8>>, IsolateError> {
    let mut content = Vec::new();
    let file = tree.file(path).on("open", path)?;
    file.take(MAX_MERGED_BYTES + 1).read_to_end(&mut content).on("read", path)?;
    let is_text = content.len() as u64 <= MAX_MERGED_BYTES && !content.contains(&0);
    Ok(is_text.then_some(content))
}

/// Returns the reason why the user has to name a path, which gets this state.
pub(crate) fn protection(
    path: &Path,
    after: Option<&Node>,
    choice: &IsolatedChoice,
) -> Option<String> {
    if choice.protected.iter().any(|named| named == path) {
        return None;
    }
    if let Some(rule) = protected_name(path) {
        return Some(rule.reason().to_owned());
    }
    match after {
        Some(Node::Link(target)) if leads_outside(path, target) => {
            Some("is a link that leads out of the workspace".to_owned())
        }
        _ => None,
    }
}

/// Whether a link at `path` leads out of the workspace, by its text alone.
fn leads_outside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::RootDir | Component::Prefix(_) => return true,
            Component::ParentDir => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return true,
            },
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_workspace_are_found_by_their_text() {
        for (path, target, expected) in [
            ("a", "/etc/passwd", true),
            ("a", "../x", true),
            ("d/a", "../x", false),
            ("d/a", "../../x", true),
            ("d/a", "b/../../x", false),
            ("d/a", "b/../../../x", true),
            ("a", "./b", false),
        ] {
            let found = leads_outside(Path::new(path), Path::new(target));
            assert_eq!(found, expected, "{path} -> {target}");
        }
    }
}
