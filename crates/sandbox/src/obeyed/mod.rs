//! Names in a workspace that programs of the user later run or obey, although the user does not name them. Pure.
//!
//! `table` and `tools` have the rows. [`protected_name`](crate::protected_name) uses the refused rows. The audit
//! finds the reported rows, and has the rule for other names.

mod table;
mod tools;

use std::ffi::OsStr;
use table::TABLE;
use tools::TOOLS;

/// Kind of program that obeys a name. Refusals name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The `.git` node, settings or hooks of a repository.
    Git,
    /// Hooks that a tool runs on commits.
    Hooks,
    /// Settings of an editor or of its tasks.
    Editor,
    /// Settings of an agent: its permissions and programs.
    Agent,
    /// File that a shell or a tool reads when it starts.
    StartUp,
    /// Project settings of the daemon.
    Own,
    /// Settings of a program that the table does not have.
    Unlisted,
}

impl Rule {
    /// Effect of such a file, to be read after its name.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Git => "decides what git runs",
            Self::Hooks => "is run on commits",
            Self::Editor => "decides what an editor runs",
            Self::Agent => "decides what an agent may do",
            Self::StartUp => "is run when a shell or a tool starts",
            Self::Own => "decides what this daemon allows",
            Self::Unlisted => "may decide what a program runs that quackd does not list",
        }
    }
}

/// Protection of a name. Commands can write all of these names: the kernel only protects names in `.git`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// File tools refuse it at any depth, and changes are reported. A program runs it although the user started
    /// another command.
    Refused,
    /// File tools refuse it at any depth. Changes are not reported, because ordinary commands change it.
    RefusedOnly,
    /// Changes are reported at any depth. Agents edit it in ordinary work.
    Reported,
    /// Changes are reported at the top of the workspace only: packages contain it too.
    ReportedAtTop,
}

impl Held {
    /// Returns true if file tools refuse to write the name.
    #[must_use]
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Refused | Self::RefusedOnly)
    }

    /// Returns true if changes are reported after commands and by the audit.
    #[must_use]
    pub fn is_reported(self) -> bool {
        !matches!(self, Self::RefusedOnly)
    }
}

/// A name that programs obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obeyed {
    /// One name, or several separated by `/`. The last one may contain one `*`.
    pub name: &'static str,
    /// Program that obeys the name.
    pub program: &'static str,
    /// Effect of the name on the program, as a short clause.
    pub reason: &'static str,
    /// Kind of the program.
    pub rule: Rule,
    /// Protection of the name.
    pub held: Held,
}

impl Obeyed {
    /// All rows.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TABLE.iter().chain(TOOLS)
    }

    /// Finds the row that refuses a path with these names, or one of its parents.
    pub(crate) fn refused(names: &[&OsStr], folds_case: bool) -> Option<&'static Self> {
        Self::all().filter(|row| row.held.is_refused()).find(|row| {
            let wanted: Vec<&str> = row.name.split('/').collect();
            let is_same = |(name, known): (&&OsStr, &&str)| is_same(name, known, folds_case);
            names.windows(wanted.len()).any(|part| part.iter().zip(&wanted).all(is_same))
        })
    }
}

pub(crate) fn is_same(name: &OsStr, known: &str, folds_case: bool) -> bool {
    match name.to_str() {
        Some(name) if folds_case => {
            // HFS+ ignores some characters, which must not hide a name.
            let plain = name.chars().filter(|c| !is_ignorable(*c)).flat_map(char::to_lowercase);
            plain.eq(known.chars().flat_map(char::to_lowercase))
        }
        _ => name == known,
    }
}

/// Characters that HFS+ ignores in names. This is the set of the file system, not the one for display.
fn is_ignorable(one: char) -> bool {
    matches!(one, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_name_is_there_once() {
        let key = |row: &Obeyed| (row.name.to_lowercase(), row.name);
        for table in [TABLE, TOOLS] {
            assert!(table.is_sorted_by(|a, b| key(a) < key(b)), "the rows are sorted by name");
        }
        assert!(TABLE.iter().all(|one| TOOLS.iter().all(|other| one.name != other.name)));
        for row in Obeyed::all() {
            let (first, last) = row.name.rsplit_once('/').unwrap_or(("", row.name));
            assert!(!first.contains('*') && last.matches('*').count() <= 1, "{row:?}");
            assert!(!row.held.is_refused() || !last.contains('*'), "{row:?}");
            assert!(!row.program.is_empty() && row.reason.len() <= 60, "{row:?}");
        }
    }

    /// Adds `item` to the list with this key, or a new list at the end.
    fn add<T>(lists: &mut Vec<(&'static str, Vec<T>)>, key: &'static str, item: T) {
        match lists.iter_mut().find(|(known, _)| *known == key) {
            Some((_, list)) => list.push(item),
            None => lists.push((key, vec![item])),
        }
    }

    /// The lines of a list in docs/security.md: an effect and its names.
    fn markdown(held: Held) -> String {
        let mut lines = Vec::new();
        for row in Obeyed::all().filter(|row| row.held == held) {
            add(&mut lines, row.rule.reason(), format!(" `{}`", row.name));
        }
        let line =
            |(reason, names): (&str, Vec<String>)| format!("- {reason}:{}\n", names.concat());
        lines.into_iter().map(line).collect()
    }

    #[test]
    fn the_document_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
        let text = std::fs::read_to_string(path).unwrap();
        for (held, title) in [
            (Held::Refused, "Refused and reported"),
            (Held::RefusedOnly, "Refused, not reported"),
            (Held::Reported, "Reported"),
            (Held::ReportedAtTop, "Reported at the top of the workspace only"),
        ] {
            let wanted = format!("\n**{title}:**\n\n{}\n", markdown(held));
            assert!(text.contains(&wanted), "docs/security.md needs this list:\n{wanted}");
        }
    }
}
