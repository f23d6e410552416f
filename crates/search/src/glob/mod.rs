//! File name patterns in minimatch syntax, as Node programs use it. Does no I/O. Called by `find` for every
//! entry.
//!
//!
//! As in minimatch, case does not matter, and a pattern without a slash is compared with base names. `{a,b}`
//! and `{1..9}` are expanded first. `**` alone in a component spans directories. `?( ) *( ) +( ) @( ) !( )` are
//! groups. A leading `!` negates. A leading `#` makes a comment, which matches nothing. A backslash is a slash.
//! An unclosed bracket or group is text.
//!
//! One deliberate difference: a pattern that begins with the group `!( )` is that group, as in bash. In
//! minimatch it negates a name in parentheses.

mod braces;
mod class;
mod error;
mod segment;

pub use error::GlobError;

use segment::{Segment, fold};

/// Maximum length of a pattern in bytes: the longest path of the kernel (`PATH_MAX`).
const MAX_BYTES: usize = 4096;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Glob {
    /// Alternatives. Each is a list of components.
    patterns: Vec<Vec<Part>>,
    is_negated: bool,
    with_dot: bool,
}

#[derive(Debug)]
enum Part {
    /// `**`: any number of components, at least one at the end.
    Deep,
    Text(Vec<char>),
    Wild(Segment),
}

/// Folds the case of a path component for comparison.
pub(crate) fn folded(name: &str) -> Vec<char> {
    name.chars().map(fold).collect()
}

impl Glob {
    /// Compiles a pattern. If `with_dot` is false, only a dot matches the leading dot of a name.
    pub(crate) fn new(pattern: &str, with_dot: bool) -> Result<Self, GlobError> {
        if MAX_BYTES < pattern.len() {
            return Err(GlobError::TooLong { max: MAX_BYTES });
        }

        let mut glob = Self { patterns: Vec::new(), is_negated: false, with_dot };
        let pattern = pattern.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        let mut pattern = pattern.replace('\\', "/");
        if pattern.starts_with('#') {
            return Ok(glob);
        }

        while pattern.starts_with('!') && !pattern.starts_with("!(") {
            pattern.remove(0);
            glob.is_negated = !glob.is_negated;
        }

        glob.patterns = braces::expand(&pattern)?.iter().map(|expanded| parts(expanded)).collect();
        Ok(glob)
    }

    /// Whether the pattern is compared with base names only.
    pub(crate) fn is_by_name(&self) -> bool {
        self.patterns.iter().all(|parts| parts.len() == 1)
    }

    /// Whether a path matches, given its [`folded`] components. An empty first component stands for a leading
    /// slash.
    pub(crate) fn is_match(&self, path: &[Vec<char>]) -> bool {
        if self.patterns.is_empty() {
            return false;
        }

        let has_match = self.patterns.iter().any(|parts| match (parts.as_slice(), path.last()) {
            // A pattern without a slash is compared with the base name.
            ([_], Some(name)) => self.matches(parts, std::slice::from_ref(name)),
            _ => self.matches(parts, path),
        });
        has_match != self.is_negated
    }

    /// Follows all alternatives of the pattern at once: after each component, `next` marks the parts that may
    /// follow.
    fn matches(&self, parts: &[Part], path: &[Vec<char>]) -> bool {
        if let [part] = parts
            && let [name] = path
        {
            return self.matches_name(part, name);
        }

        let mut here = vec![false; parts.len() + 1];
        let mut next = here.clone();
        reach(parts, 0, &mut next);

        for name in path {
            std::mem::swap(&mut here, &mut next);
            next.fill(false);
            let mut is_alive = false;
            let possible = parts.iter().zip(&here).enumerate().filter(|(_, (_, marked))| **marked);
            for (at, (part, _)) in possible {
                if self.matches_name(part, name) {
                    is_alive = true;
                    reach(parts, at + 1, &mut next);
                    if matches!(part, Part::Deep) {
                        reach(parts, at, &mut next);
                    }
                }
            }

            if !is_alive {
                return false;
            }
        }

        next.last() == Some(&true)
    }

    fn matches_name(&self, part: &Part, name: &[char]) -> bool {
        match part {
            Part::Deep => self.with_dot || name.first() != Some(&'.'),
            Part::Text(text) => text == name,
            Part::Wild(segment) => segment.is_match(name, self.with_dot),
        }
    }
}

/// Marks the part at `at`. If it is `**`, also marks the next part, because `**` may match nothing, except at
/// the end.
fn reach(parts: &[Part], at: usize, marks: &mut [bool]) {
    for id in at..marks.len() {
        if let Some(mark) = marks.get_mut(id) {
            *mark = true;
        }
        if !matches!(parts.get(id), Some(Part::Deep)) || id + 1 == parts.len() {
            break;
        }
    }
}

fn parts(pattern: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut names = pattern.split('/').peekable();
    let mut is_first = true;

    while let Some(name) = names.next() {
        // Consecutive slashes count as one. Leading and trailing slashes are significant.
        if name.is_empty() && !is_first && names.peek().is_some() {
            continue;
        }
        is_first = false;

        let previous = parts.last();
        match name {
            "**" if matches!(previous, Some(Part::Deep)) => (),
            "**" => parts.push(Part::Deep),
            ".." if matches!(previous, Some(Part::Wild(_)))
                || matches!(previous, Some(Part::Text(text)) if !is_dots(text)) =>
            {
                parts.pop();
            }
            name => {
                let segment = Segment::parse(name);
                parts.push(if segment.is_text() {
                    Part::Text(folded(name))
                } else {
                    Part::Wild(segment)
                });
            }
        }
    }
    parts
}

fn is_dots(text: &[char]) -> bool {
    text.is_empty() || text == ['.'] || text == ['.', '.']
}

#[cfg(test)]
mod tests;
