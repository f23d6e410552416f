//! The table of docs/escapes.md: a row for each case, a column for each tier. It is the expectation of every run, and
//! `QUACKD_UPDATE=1` rewrites it from the runs of this machine.

use super::corpus::{self, Case};
use super::world::has_program;
use super::{Row, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// Variable that rewrites the table.
const UPDATE: &str = "QUACKD_UPDATE";

const BEGIN: &str = "<!-- begin of the table -->\n";
const END: &str = "<!-- end of the table -->\n";
const HEAD: &str =
    "| case | tries | full access | A | B | D | M |\n|---|---|---|---|---|---|---|\n";

/// The columns with verdicts, as tiers.
const COLUMNS: [&str; 5] = [super::modes::UNCONFINED, "A", "B", "D", "M"];

const HELD: &str = "held";
const NOT_RUN: &str = "–";

/// With full access: other kernels or programs decide it.
const DEPENDS: &str = "depends";

/// The verdicts by case, in the order of the columns.
pub(super) struct Table(BTreeMap<String, [String; 5]>);

fn document() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/escapes.md").into()
}

/// The text before the table, the table, and the text after it.
fn parts(text: &str) -> Option<[&str; 3]> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    Some([before, table, after])
}

impl Table {
    /// Reads the document.
    pub(super) fn read() -> Self {
        let text = fs::read_to_string(document()).expect("docs/escapes.md");
        let [_, table, _] = parts(&text).expect("a table in docs/escapes.md");
        let row = |line: &str| {
            let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
            let id = cells.next()?.to_owned();
            let cells: Vec<String> = cells.skip(1).map(str::to_owned).collect();
            Some((id, cells.try_into().ok()?))
        };
        Self(table.lines().filter_map(row).collect())
    }

    /// Verdict of the document about a case in a tier.
    pub(super) fn cell(&self, id: &str, tier: &str) -> &str {
        let n = COLUMNS.iter().position(|column| *column == tier).expect("a column");
        self.0.get(id).map_or("no row", |cells| &cells[n])
    }

    /// Replaces the verdicts of a tier by those of a run.
    pub(super) fn put(&mut self, tier: &str, rows: &[Row]) {
        let n = COLUMNS.iter().position(|column| *column == tier).expect("a column");
        for row in rows {
            let cells = self
                .0
                .entry(row.case.id.clone())
                .or_insert_with(|| [NOT_RUN; 5].map(str::to_owned));
            if let Some(cell) = cell_of(tier, row) {
                cells[n] = cell;
            }
        }
    }

    /// Renders the table and the reasons of the accepted escapes.
    pub(super) fn render(&self) -> String {
        let (mut text, mut reasons) = (HEAD.to_owned(), String::new());
        for case in corpus::cases() {
            let cells =
                self.0.get(&case.id).map_or([NOT_RUN; 5], |cells| cells.each_ref().map(|it| &**it));
            let tries = case.tries.replace('|', "\\|");
            writeln!(text, "| {} | {tries} | {} |", case.id, cells.join(" | ")).expect("a text");
            reasons.push_str(&reasons_of(&case, cells));
        }
        format!("{text}\nWhy what is not held is accepted:\n\n{reasons}")
    }

    /// The escapes without a reason, and the reasons without an escape.
    fn unexplained(&self) -> Vec<String> {
        let of = |case: &Case| -> Vec<String> {
            let complaint = |tier: &str| {
                let cell = self.cell(&case.id, tier);
                let is_accepted = case.accepted.contains_key(tier);
                let is_wrong = cell != NOT_RUN && is_escape(cell) != is_accepted;
                is_wrong.then(|| format!("{} in {tier}: {cell}, accepted: {is_accepted}", case.id))
            };
            COLUMNS.into_iter().skip(1).filter_map(complaint).collect()
        };
        corpus::cases().iter().flat_map(of).collect()
    }

    /// Compares the table with the document, or writes it there. Each escape has a reason, and each reason an escape.
    #[track_caller]
    pub(super) fn assert_documented(&self) {
        let text = fs::read_to_string(document()).expect("docs/escapes.md");
        let [before, table, after] = parts(&text).expect("a table in docs/escapes.md");
        let now = self.render();
        if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
            let text = [before, BEGIN, &now, END, after].concat();
            fs::write(document(), text).expect("write docs/escapes.md");
        } else {
            let line_of = |mark, one: &str, other: &str| -> Vec<String> {
                let lines = one.lines().filter(|line| !other.lines().any(|it| it == *line));
                lines.map(|line| format!("{mark} {line}")).collect()
            };
            let changed = [line_of('-', table, &now), line_of('+', &now, table)].concat();
            let told = changed.join("\n");
            assert!(table == now, "docs/escapes.md differs; {UPDATE}=1 rewrites it:\n{told}");
        }
        assert_eq!(self.unexplained(), Vec::<String>::new());
    }
}

/// One line for each reason of the accepted escapes of a case.
fn reasons_of(case: &Case, cells: [&str; 5]) -> String {
    let mut by_reason = BTreeMap::<&str, Vec<&str>>::new();
    for (tier, _) in COLUMNS.into_iter().zip(cells).skip(1).filter(|(_, cell)| is_escape(cell)) {
        let reason = case.accepted.get(tier).map_or("**not accepted**", String::as_str);
        by_reason.entry(reason).or_default().push(tier);
    }
    let line = |(reason, tiers): (&&str, &Vec<&str>)| {
        format!("- {} in {}: {reason}\n", case.id, tiers.join(", "))
    };
    by_reason.iter().map(line).collect()
}

fn is_escape(cell: &str) -> bool {
    cell != HELD && cell != NOT_RUN
}

/// The cell of a verdict. `None` if this machine does not tell it.
fn cell_of(tier: &str, row: &Row) -> Option<String> {
    let Row { case, verdict, .. } = row;
    if tier == COLUMNS[0] && !matches!(verdict, Verdict::LeftOut(_)) {
        if case.may.is_some() {
            return Some(DEPENDS.to_owned());
        }
        if !case.needs.iter().all(|name| has_program(name)) {
            return None;
        }
    }
    match verdict {
        Verdict::Held => Some(HELD.to_owned()),
        Verdict::Violated(kinds) if kinds == &[super::REFUSED] => Some(super::REFUSED.to_owned()),
        Verdict::Violated(kinds) => Some(format!("escapes: {}", kinds.join(", "))),
        Verdict::LeftOut(_) => Some(NOT_RUN.to_owned()),
        // No tier.
        Verdict::Broken(_) | Verdict::NotHere(_) => None,
    }
}

/// Compares a run with the document.
#[track_caller]
pub(super) fn assert_documented(tier: &str, rows: &[Row]) {
    let table = Table::read();
    let told = |row: &Row| {
        let (now, told) = (cell_of(tier, row)?, table.cell(&row.case.id, tier));
        (now != told && now != NOT_RUN)
            .then(|| format!("{}: {now}, in docs/escapes.md: {told}", row.case.id))
    };
    let differ: Vec<String> = rows.iter().filter_map(told).collect();
    assert!(differ.is_empty(), "{tier}:\n{}", differ.join("\n"));
}
