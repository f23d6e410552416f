//! Names in a workspace that programs of the user later run or obey, although the user does not name them. Pure.
//!
//! [`table`] and [`tools`] have the rows, [`unlisted`] the rule for other names.
//! [`protected_name`](crate::protected_name) uses the refused rows, and the audit the reported ones.

mod table;
mod tools;
mod unlisted;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;
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

/// True if the usual file systems of this system ignore case.
pub(crate) const FOLDS_CASE: bool = cfg!(target_os = "macos");

/// Row for names that only the rule of [`unlisted`] finds.
static RULE_ONLY: Obeyed = Obeyed {
    name: "",
    program: "unknown programs",
    reason: "has the form of a settings file",
    rule: Rule::Unlisted,
    held: Held::Reported,
};

/// Rows with a plain last name, and rows with a pattern by its first byte.
type Index = (HashMap<&'static str, Vec<&'static Obeyed>>, HashMap<u8, Vec<&'static Obeyed>>);

/// The reported rows by their last name, because a walk looks up each entry of a tree.
static BY_LAST_NAME: LazyLock<Index> = LazyLock::new(|| {
    let (mut plain, mut patterns) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
    for row in Obeyed::all().filter(|row| row.held.is_reported()) {
        let last = row.last();
        match last.bytes().next() {
            Some(first) if last.contains('*') => patterns.entry(first).or_default().push(row),
            _ => plain.entry(last).or_default().push(row),
        }
    }
    (plain, patterns)
});

impl Obeyed {
    /// All rows.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TABLE.iter().chain(TOOLS)
    }

    /// Finds the row for the entry `name` of `directory`, a path below the workspace, if changes of it are reported.
    pub(crate) fn reported(directory: &Path, name: &OsStr) -> Option<&'static Self> {
        let text = name.to_str()?;
        let (plain, patterns) = &*BY_LAST_NAME;
        let plain = plain.get(text).map(Vec::as_slice).unwrap_or_default().iter();
        let first = text.bytes().next().unwrap_or_default();
        let patterns = [first, b'*'].into_iter().filter_map(|first| patterns.get(&first)).flatten();
        let patterns = patterns.filter(|row| matches(row.last(), text));
        plain.chain(patterns).copied().find(|row| row.is_in(directory))
    }

    /// Like [`Obeyed::reported`], and applies the rule for names that the table does not have.
    pub(crate) fn watched(
        directory: &Path,
        name: &OsStr,
        is_directory: bool,
    ) -> Option<&'static Self> {
        Self::reported(directory, name)
            .or_else(|| unlisted::unlisted(directory, name, is_directory))
    }

    fn last(&self) -> &'static str {
        self.name.rsplit('/').next().unwrap_or(self.name)
    }

    /// Returns true if the last name counts in this directory.
    fn is_in(&self, directory: &Path) -> bool {
        let parents = self.name.rsplit_once('/').map(|(parents, _)| Path::new(parents));
        match (self.held, parents) {
            (Held::ReportedAtTop, parents) => directory == parents.unwrap_or_else(|| Path::new("")),
            (_, parents) => parents.is_none_or(|parents| directory.ends_with(parents)),
        }
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

/// Returns true if `name` matches a pattern with one `*`, which matches any text.
fn matches(pattern: &str, name: &str) -> bool {
    pattern.split_once('*').is_some_and(|(first, last)| {
        first.len() + last.len() <= name.len() && name.starts_with(first) && name.ends_with(last)
    })
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

    #[test]
    fn names_are_found_where_they_count() {
        let found = |directory: &str, name: &str| {
            Obeyed::reported(Path::new(directory), OsStr::new(name)).map(|row| row.name)
        };
        for (directory, name, expected) in [
            ("", ".envrc", Some(".envrc")),
            ("a/b", ".envrc", Some(".envrc")),
            ("", "mise.prod.toml", Some("mise.*.toml")),
            ("", "mise.toml", Some("mise.toml")),
            ("x/.config", "mise.toml", Some(".config/mise.toml")),
            (".hg", "hgrc", Some(".hg/hgrc")),
            ("hg", "hgrc", None),
            ("", "x.code-workspace", Some("*.code-workspace")),
            ("", "eslint.config.mjs", Some("eslint.config.*")),
            ("a", "eslint.config.mjs", Some("eslint.config.*")),
            ("a/.config", "prettierrc", Some(".config/prettierrc*")),
            ("a/b", ".prettierrc.ts", Some(".prettierrc*")),
            ("a", ".venv", None),
            ("", ".hg", None),
            ("", "Makefile", None),
            ("gradle/wrapper", "gradle-wrapper.jar", Some("gradle/wrapper/gradle-wrapper.jar")),
            ("wrapper", "gradle-wrapper.jar", None),
        ] {
            assert_eq!(found(directory, name), expected, "{directory} {name}");
        }
    }
}
