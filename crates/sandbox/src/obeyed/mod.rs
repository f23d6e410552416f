//! Names in a workspace that programs of the user later run or obey, although the user does not name them. Pure.
//!
//! `table` and `tools` have the rows, and `row` their type. [`protected_name`](crate::protected_name) uses the refused
//! rows. The audit finds the reported rows, and has the rule for other names.

mod row;
mod table;
mod tools;

pub use row::{Held, Obeyed, Rule};

use std::ffi::OsStr;
use table::TABLE;
use tools::TOOLS;

impl Obeyed {
    /// All rows.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TABLE.iter().chain(TOOLS)
    }

    /// Finds the row that refuses a path with these names, or one of its parents.
    pub(crate) fn refused(names: &[&OsStr], folds_case: bool) -> Option<&'static Self> {
        Self::all().filter(|row| row.held.is_refused()).find(|row| {
            let parts: Vec<&str> = row.name.split('/').collect();
            let is_same = |(name, known): (&&OsStr, &&str)| is_same(name, known, folds_case);
            names.windows(parts.len()).any(|part| part.iter().zip(&parts).all(is_same))
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
