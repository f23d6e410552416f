//! Renders Markdown for a terminal while it arrives. Used by [`super::messages`].
//!
//! A text is split into blocks: paragraphs, lists, tables. A block is printed when it is complete, because its end can
//! change how its beginning looks. Lines of code are printed as they come.

use super::wrap::{self, Wrap, styled_width};
use crate::display::width;
use crate::output::{BOLD, CYAN, DIM};
use crate::sanitize::clean;
use anstyle::Style;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Maximum size of a block, in bytes. A longer one is printed in parts.
const MAX_BLOCK: usize = 32 * 1024;

/// Maximum width of a rule, in columns.
const RULE: usize = 40;

/// Beginning of a line of code.
const CODE: &str = "    ";

const ITALIC: Style = Style::new().italic();
const UNDERLINED: Style = Style::new().underline();
const STRUCK: Style = Style::new().strikethrough();

/// Text that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct Markdown {
    /// Complete lines of the current block.
    block: String,
    /// Start of a line whose end has not arrived.
    line: String,
    /// The fence of the current code, if its lines are printed as they come.
    fence: Option<Fence>,
    /// The fence of code within the block.
    inner_fence: Option<Fence>,
    /// Whether an empty line was read, which ends the block unless it continues with an indented line.
    is_ended: bool,
    /// Whether an empty line precedes the next block.
    is_apart: bool,
}

/// Beginning of a block of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    mark: char,
    count: usize,
}

impl Fence {
    /// Reads the first line of code. `None` for another line.
    fn opened(line: &str) -> Option<Self> {
        let text = line.trim_start();
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let count = text.chars().take_while(|c| *c == mark).count();
        let info = text.get(count..).unwrap_or_default();
        (3 <= count && !(mark == '`' && info.contains('`'))).then_some(Self { mark, count })
    }

    fn is_closed_by(self, line: &str) -> bool {
        let text = line.trim();
        self.count <= text.chars().count() && text.chars().all(|c| c == self.mark)
    }
}

impl Markdown {
    /// Adds a sanitized piece. Returns the rows that are complete, for a terminal of this width.
    pub(super) fn feed(&mut self, text: &str, columns: usize) -> Vec<String> {
        let mut rows = Vec::new();
        for piece in text.split_inclusive('\n') {
            self.line.push_str(piece.strip_suffix('\n').unwrap_or(piece));
            if piece.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                self.line(&line, columns, &mut rows);
            } else if MAX_BLOCK < self.block.len() + self.line.len() {
                // A text without a line end must not wait forever.
                let line = std::mem::take(&mut self.line);
                self.line(&line, columns, &mut rows);
                self.end_block(columns, &mut rows);
            }
        }
        rows
    }

    /// Ends the text. Returns the remaining rows.
    pub(super) fn finish(&mut self, columns: usize) -> Vec<String> {
        let mut rows = Vec::new();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.line(&line, columns, &mut rows);
        }
        self.end_block(columns, &mut rows);
        *self = Self::default();
        rows
    }

    /// Whether a block is incomplete.
    pub(super) fn is_open(&self) -> bool {
        !self.block.is_empty() || !self.line.is_empty()
    }

    /// Returns the rows of the incomplete block.
    pub(super) fn open_rows(&self, columns: usize) -> Vec<String> {
        if self.fence.is_some() {
            return if self.line.is_empty() { Vec::new() } else { code_rows(&self.line, columns) };
        }
        let whole = format!("{}{}", self.block, self.line);
        if whole.is_empty() { Vec::new() } else { block_rows(&whole, columns) }
    }

    fn line(&mut self, line: &str, columns: usize, rows: &mut Vec<String>) {
        if let Some(fence) = self.fence {
            if fence.is_closed_by(line) {
                self.fence = None;
            } else {
                rows.extend(code_rows(line, columns));
            }
            return;
        }

        let is_indented = line.starts_with([' ', '\t']);
        let is_empty = line.trim().is_empty();

        if let Some(fence) = self.inner_fence {
            if fence.is_closed_by(line) {
                self.inner_fence = None;
            }
        } else if is_empty {
            self.is_ended |= !self.block.is_empty();
            self.is_apart = true;
            if !self.block.is_empty() {
                self.block.push('\n');
            }
            return;
        } else {
            if self.is_ended && !is_indented {
                self.end_block(columns, rows);
            }
            // An indented line continues the list before it.
            let is_part = is_indented && !self.block.is_empty();
            if let Some(fence) = Fence::opened(line) {
                if !is_part {
                    self.end_block(columns, rows);
                    self.separate(rows);
                    self.fence = Some(fence);
                    return;
                }
                self.inner_fence = Some(fence);
            }
        }

        self.is_ended = false;
        if self.block.is_empty() {
            self.separate(rows);
        }

        self.block.push_str(line);
        self.block.push('\n');

        let is_heading = !is_indented && line.starts_with('#') && self.block.lines().count() == 1;
        if is_heading || MAX_BLOCK < self.block.len() {
            self.end_block(columns, rows);
        }
    }

    /// Prints the empty line before a block, if the text has one.
    fn separate(&mut self, rows: &mut Vec<String>) {
        if std::mem::take(&mut self.is_apart) {
            rows.push(String::new());
        }
    }

    fn end_block(&mut self, columns: usize, rows: &mut Vec<String>) {
        let block = std::mem::take(&mut self.block);
        (self.is_ended, self.inner_fence) = (false, None);
        if !block.trim().is_empty() {
            rows.extend(block_rows(&block, columns));
        }
    }
}

/// Returns the rows of a line of code. A long one is broken, so that it can be copied except for its indentation.
fn code_rows(line: &str, columns: usize) -> Vec<String> {
    wrap::rows(&format!("{CYAN}{line}{CYAN:#}"), columns, Wrap::Anywhere, (CODE, CODE))
}

/// Returns the rows of a complete block.
fn block_rows(block: &str, columns: usize) -> Vec<String> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut builder = Builder { columns, ..Builder::default() };
    for event in Parser::new_ext(block, options) {
        builder.event(event);
    }
    builder.end_text();
    builder.rows
}

/// Rows of a block that is being read.
#[derive(Debug, Default)]
struct Builder {
    columns: usize,
    rows: Vec<String>,
    /// Text of the current paragraph or cell, with styles.
    text: String,
    styles: Vec<Style>,
    /// Beginning of further rows, from the quotes and items around.
    indents: Vec<String>,
    /// Beginning of the next row, if it is the first of an item.
    marker: Option<String>,
    /// Number of the next item of each list around; `None` for points.
    lists: Vec<Option<u64>>,
    links: Vec<(String, usize)>,
    is_code: bool,
    table: Option<Vec<Vec<String>>>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => {
                for line in clean(&text).lines() {
                    let (first, next) = self.prefixes();
                    let (first, next) = (format!("{first}{CODE}"), format!("{next}{CODE}"));
                    self.add(&format!("{CYAN}{line}{CYAN:#}"), Wrap::Anywhere, &first, &next);
                }
            }
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => self.text.push_str(&safe(&text)),
            Event::Code(text) => {
                self.text.push_str(&format!("{CYAN}{}{CYAN:#}", safe(&text)));
                self.restyle();
            }
            // Models write lines as they mean them.
            Event::SoftBreak | Event::HardBreak => self.text.push('\n'),
            Event::Rule => {
                let rule = "─".repeat(self.columns.saturating_sub(1).min(RULE));
                self.rows.push(format!("{DIM}{rule}{DIM:#}"));
            }
            Event::TaskListMarker(is_done) => {
                self.text.push_str(if is_done { "[x] " } else { "[ ] " });
            }
            Event::FootnoteReference(text) => self.text.push_str(&format!("[{}]", safe(&text))),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } | Tag::Strong => self.style(BOLD),
            Tag::Emphasis => self.style(ITALIC),
            Tag::Strikethrough => self.style(STRUCK),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.style(UNDERLINED);
                self.links.push((safe(&dest_url), self.text.len()));
            }
            Tag::BlockQuote(_) => {
                self.end_text();
                self.indents.push(format!("{DIM}│{DIM:#} "));
            }
            Tag::CodeBlock(_) => {
                self.end_text();
                self.is_code = true;
            }
            Tag::List(first) => {
                self.end_text();
                self.lists.push(first);
            }
            Tag::Item => {
                self.end_text();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number += 1;
                        marker
                    }
                    _ => "- ".to_owned(),
                };

                // An item in the first row of an item follows its marker.
                let outer = self.marker.take().unwrap_or_else(|| self.indent());
                self.indents.push(" ".repeat(width(&marker)));
                self.marker = Some(outer + &marker);
            }
            Tag::Table(_) => self.table = Some(Vec::new()),
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.push(Vec::new());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Strong | TagEnd::Emphasis | TagEnd::Strikethrough => self.unstyle(),
            TagEnd::Heading(_) => {
                self.unstyle();
                self.end_text();
            }
            TagEnd::Link | TagEnd::Image => {
                self.unstyle();
                let Some((url, begin)) = self.links.pop() else { return };

                let text = self.text.get(begin..).unwrap_or_default();
                let text = anstream::adapter::strip_str(text).to_string();
                if text != url && format!("mailto:{text}") != url {
                    self.text.push_str(&format!(" {DIM}({url}){DIM:#}"));
                    self.restyle();
                }
            }
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_text(),
            TagEnd::Item => {
                self.end_text();

                // An item without a text has its marker.
                if let Some(marker) = self.marker.take() {
                    self.add(marker.trim_end(), Wrap::Anywhere, "", "");
                }
                self.indents.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_text();
                self.indents.pop();
            }
            TagEnd::List(_) => drop(self.lists.pop()),
            TagEnd::CodeBlock => self.is_code = false,
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                if let Some(row) = self.table.as_mut().and_then(|table| table.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Table => {
                let table = self.table.take().unwrap_or_default();
                let indent = self.indent();
                self.rows.extend(table_rows(&table, self.columns, &indent));
            }
            _ => {}
        }
    }

    /// Adds the rows of a line with styles: the first begins with `first`, the others with `next`.
    fn add(&mut self, line: &str, wrap: Wrap, first: &str, next: &str) {
        self.rows.extend(wrap::rows(line, self.columns, wrap, (first, next)));
    }

    fn style(&mut self, style: Style) {
        self.text.push_str(&style.render().to_string());
        self.styles.push(style);
    }

    fn unstyle(&mut self) {
        if let Some(style) = self.styles.pop() {
            self.text.push_str(&style.render_reset().to_string());
        }
        self.restyle();
    }

    /// Begins the styles around again, after the end of one has ended all.
    fn restyle(&mut self) {
        for style in &self.styles {
            self.text.push_str(&style.render().to_string());
        }
    }

    /// Returns the beginnings of the first and of further rows. Deep nesting leaves room for the text.
    fn prefixes(&mut self) -> (String, String) {
        let next = self.indent();
        let first = self.marker.take().filter(|first| self.columns / 2 > styled_width(first));
        (first.unwrap_or_else(|| next.clone()), next)
    }

    fn indent(&self) -> String {
        let indent = self.indents.concat();
        if styled_width(&indent) < self.columns / 2 { indent } else { String::new() }
    }

    /// Prints the current text.
    fn end_text(&mut self) {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return;
        }
        let (mut first, next) = self.prefixes();
        for line in text.trim_end_matches('\n').split('\n') {
            self.add(line, Wrap::Words, &first, &next);
            first.clone_from(&next);
        }
    }
}

/// Returns a text on one line without control characters: the parser turns `&#27;` into one.
fn safe(text: &str) -> String {
    clean(text).replace('\n', " ")
}

/// Returns the rows of a table whose first row is its head. A table that is too wide becomes a list.
fn table_rows(table: &[Vec<String>], columns: usize, indent: &str) -> Vec<String> {
    let Some((head, body)) = table.split_first() else { return Vec::new() };
    let widest = |n: usize| {
        let cells = table.iter().filter_map(|row| row.get(n));
        cells.map(|cell| styled_width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(widest).collect();

    let total: usize = widths.iter().map(|width| width + 3).sum();
    if columns <= total + styled_width(indent) {
        let items = body.iter().flat_map(|row| {
            row.iter().zip(head).enumerate().map(|(n, (cell, name))| {
                let mark = if n == 0 { "- " } else { "  " };
                (mark, format!("{BOLD}{name}{BOLD:#}: {cell}"))
            })
        });
        let next = format!("{indent}    ");
        return items
            .flat_map(|(mark, text)| {
                wrap::rows(&text, columns, Wrap::Words, (&format!("{indent}{mark}"), &next))
            })
            .collect();
    }

    let row = |cells: &[String], is_head: bool| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| {
            let gap = " ".repeat(width - styled_width(cell).min(*width));
            if is_head { format!("{BOLD}{cell}{BOLD:#}{gap}") } else { format!("{cell}{gap}") }
        });
        let cells: Vec<String> = cells.collect();
        format!("{indent}{}", cells.join(&format!(" {DIM}│{DIM:#} "))).trim_end().to_owned()
    };

    let lines: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    let mut rows = vec![row(head, true), format!("{indent}{DIM}{}{DIM:#}", lines.join("─┼─"))];
    rows.extend(body.iter().map(|cells| row(cells, false)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(rows: &[String]) -> Vec<String> {
        rows.iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect()
    }

    fn shown(text: &str, columns: usize) -> Vec<String> {
        let mut markdown = Markdown::default();
        let mut rows = markdown.feed(text, columns);
        rows.extend(markdown.finish(columns));
        plain(&rows)
    }

    #[test]
    fn blocks_are_rendered_for_a_terminal() {
        for (text, expected) in [
            ("# Title\ntext", vec!["Title", "text"]),
            ("a **bold** *soft* `c`\n\nnext", vec!["a bold soft c", "", "next"]),
            ("one two three four", vec!["one two three", "four"]),
            ("see [it](http://a.b)", vec!["see it", "(http://a.b)"]),
            ("<http://a.b>", vec!["http://a.b"]),
            ("```rust\nfn a() {\n\n}\n```\nend", vec!["    fn a() {", "    ", "    }", "end"]),
            ("- one\n- two\n  - three\n", vec!["- one", "- two", "  - three"]),
            ("1. one\n\n2. a long item here", vec!["1. one", "", "2. a long item", "   here"]),
            ("9. x\n\n   ```\n   code\n   ```\n", vec!["9. x", "       code"]),
            ("> said\n> more", vec!["│ said", "│ more"]),
            ("one\ntwo\n- a\n  b", vec!["one", "two", "- a", "  b"]),
            ("- [x] done", vec!["- [x] done"]),
            ("---\n", vec!["───────────────"]),
            ("|a|b|\n|-|-|\n|x|`yy`|\n", vec!["a │ b", "──┼───", "x │ yy"]),
            ("|a|name|\n|-|-|\n|x|a long cell|\n", vec!["- a: x", "  name: a long", "    cell"]),
            ("snake_case_name * 2 < 3", vec!["snake_case_name", "* 2 < 3"]),
        ] {
            assert_eq!(shown(text, 16), expected, "{text:?}");
        }
    }

    #[test]
    fn no_reference_to_a_character_steers_the_terminal() {
        for text in [
            "&#27;[2J &#x202e;x &#10;y",
            "[a&#27;[2J](http://b&#27;[2J)",
            "|&#27;[2J|b&#10;c|\n|-|-|\n|&#x9b;2J|`&#27;`|\n",
            "# &#7;&#13;",
            "```\n&#27;[2J\n```",
            "- &#27;]0;title&#7;",
        ] {
            let mut markdown = Markdown::default();
            let mut rows = markdown.feed(text, 40);
            rows.extend(markdown.finish(40));
            let rows = rows.join("\n");
            assert!(!rows.contains("\u{1b}[2J") && !rows.contains("\u{1b}]"), "{text}: {rows:?}");
            let is_foreign =
                |c: char| c.is_control() && !matches!(c, '\n' | '\u{1b}') || c == '\u{202e}';
            assert!(!rows.contains(is_foreign), "{text}: {rows:?}");
        }
    }

    #[test]
    fn what_is_not_complete_is_open_and_rendered_too() {
        let mut markdown = Markdown::default();
        assert!(markdown.feed("a **bo", 40).is_empty());
        assert_eq!(plain(&markdown.open_rows(40)), ["a **bo"]);
        assert!(markdown.feed("ld** word\n", 40).is_empty());
        assert_eq!(plain(&markdown.open_rows(40)), ["a bold word"]);
        assert_eq!(plain(&markdown.feed("\nnext", 40)), Vec::<String>::new());
        assert_eq!(plain(&markdown.feed(" line\n```\nlet", 40)), ["a bold word", "", "next line"]);
        assert_eq!(plain(&markdown.open_rows(40)), ["    let"]);
    }

    proptest! {
        #[test]
        fn no_letter_is_lost_and_no_split_changes_the_rows(
            text in "([a-d \n>#*`|_-]|1\\. |```\n|\\[x\\]\\(u\\)){0,60}",
            cuts in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let whole = shown(&text, 20);
            let mut markdown = Markdown::default();
            let mut rows = Vec::new();
            let mut begin = 0;
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|at| *at <= text.len()).collect();
            cuts.sort_unstable();
            for at in cuts.into_iter().chain([text.len()]) {
                rows.extend(markdown.feed(&text[begin..at], 20));
                let _open = markdown.open_rows(20);
                begin = at;
            }
            rows.extend(markdown.finish(20));
            prop_assert_eq!(plain(&rows), whole);
            for row in plain(&rows) {
                prop_assert!(width(&row) <= 20, "{:?}", row);
            }
        }
    }
}
