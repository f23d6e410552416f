//! One component of a pattern, with wildcards, classes and groups, compared with one file name.
//!
//! The parsed component is compiled to a small automaton. Its states are evaluated from the end of the name to
//! its start, each once per character. The time is the product of both lengths for every pattern: no
//! backtracking, which a hostile pattern could exploit.

use super::class::Class;

/// Maximum nesting depth of groups. Deeper groups are text.
const MAX_DEPTH: usize = 8;

/// A compiled component.
#[derive(Debug)]
pub(super) struct Segment {
    // INVARIANT: a state refers to states before it, except a loop to its bodies, which come after.
    states: Vec<NfaState>,
    start: usize,
    has_loops: bool,
    /// Literal end of every matching name. Most names are rejected by this comparison.
    tail: Vec<char>,
}

#[derive(Debug)]
enum Node {
    Char(char),
    /// `?`
    Any,
    /// `*`
    Star,
    Class(Class),
    /// `?( )`, `*( )`, `+( )`, `@( )`, `!( )`
    Group(char, Vec<Vec<Self>>),
}

#[derive(Debug)]
enum NfaState {
    Accept,
    Char(char, usize),
    Any(usize),
    Class(Class, usize),
    /// Any number of characters.
    Star(usize),
    /// Any of these states.
    Either(Vec<usize>),
    /// Continues with the first state, or with one of the others, which lead back here.
    Loop(usize, Vec<usize>),
    /// Continues with the second state, unless one of the others matches the rest.
    Unless(Vec<usize>, usize),
}

impl Segment {
    /// Parses a component. An unclosed bracket or group is text.
    pub(super) fn parse(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        let mut parser = Parser { text: &text, closed: closed_groups(&text), at: 0 };
        let nodes = parser.sequence(0);

        let mut segment =
            Self { states: vec![NfaState::Accept], start: 0, has_loops: false, tail: Vec::new() };
        segment.start = segment.compile(&nodes, 0);

        // The literal end rejects most names without a run of the automaton.
        let letters = nodes.iter().rev().map_while(|node| match node {
            Node::Char(c) => Some(*c),
            _ => None,
        });
        segment.tail = letters.collect();
        segment.tail.reverse();
        segment
    }

    /// Whether the component is plain text without wildcards.
    pub(super) fn is_text(&self) -> bool {
        self.tail.len() + 1 == self.states.len()
    }

    /// Whether the folded `name` matches. If `with_dot` is false, only a dot matches a leading dot.
    pub(super) fn is_match(&self, name: &[char], with_dot: bool) -> bool {
        if name.is_empty() || !name.ends_with(&self.tail) {
            return name.is_empty()
                && matches!(self.states.get(self.start), Some(NfaState::Accept));
        }

        let hides_dot = !with_dot && name.first() == Some(&'.');
        let mut later = vec![false; self.states.len()];
        let mut now = later.clone();

        for at in (0..=name.len()).rev() {
            let step = InputChar { c: name.get(at).copied(), is_hidden: hides_dot && at == 0 };
            now.fill(false);
            // A loop is evaluated before its bodies, so the states are evaluated again until nothing changes.
            for _ in 0..=MAX_DEPTH {
                let is_stable = self.evaluate(&step, &mut now, &later);
                if !self.has_loops || is_stable {
                    break;
                }
            }
            std::mem::swap(&mut now, &mut later);
        }
        is(&later, self.start)
    }

    /// Computes for every state whether the rest of the name matches from here. Returns true if `now` did not
    /// change.
    fn evaluate(&self, step: &InputChar, now: &mut [bool], later: &[bool]) -> bool {
        let mut is_stable = true;
        for (id, state) in self.states.iter().enumerate() {
            let visible = (!step.is_hidden).then_some(step.c).flatten();
            let value = match state {
                NfaState::Accept => step.c.is_none(),
                NfaState::Char(c, next) => step.c == Some(*c) && is(later, *next),
                NfaState::Any(next) => visible.is_some() && is(later, *next),
                NfaState::Class(class, next) => {
                    visible.is_some_and(|c| class.contains(c)) && is(later, *next)
                }
                NfaState::Star(next) => !step.is_hidden && (is(now, *next) || is(later, id)),
                NfaState::Either(choices) => choices.iter().any(|choice| is(now, *choice)),
                NfaState::Loop(next, bodies) => {
                    is(now, *next) || bodies.iter().any(|body| is(now, *body))
                }
                NfaState::Unless(bodies, rest) => {
                    is(now, *rest) && !bodies.iter().any(|body| is(now, *body))
                }
            };

            if let Some(known) = now.get_mut(id) {
                is_stable &= *known == value;
                *known = value;
            }
        }
        is_stable
    }

    /// Adds the states of `nodes`, which lead to `next`, and returns the first state.
    fn compile(&mut self, nodes: &[Node], next: usize) -> usize {
        nodes.iter().rev().fold(next, |next, node| match node {
            Node::Char(c) => self.push(NfaState::Char(*c, next)),
            Node::Any => self.push(NfaState::Any(next)),
            Node::Star => self.push(NfaState::Star(next)),
            Node::Class(class) => self.push(NfaState::Class(class.clone(), next)),
            Node::Group(kind, choices) => self.compile_group(*kind, choices, next),
        })
    }

    fn compile_group(&mut self, kind: char, choices: &[Vec<Node>], next: usize) -> usize {
        if matches!(kind, '*' | '+') {
            self.has_loops = true;
            // First, because its bodies lead back to it.
            let again = self.push(NfaState::Loop(next, Vec::new()));
            let entries = self.compile_all(choices, again);
            if let Some(NfaState::Loop(_, bodies)) = self.states.get_mut(again) {
                bodies.clone_from(&entries);
            }
            return if kind == '*' { again } else { self.push(NfaState::Either(entries)) };
        }

        let mut entries = self.compile_all(choices, next);
        match kind {
            '!' => {
                let rest = self.push(NfaState::Star(next));
                self.push(NfaState::Unless(entries, rest))
            }
            '?' => {
                entries.push(next);
                self.push(NfaState::Either(entries))
            }
            _ => self.push(NfaState::Either(entries)),
        }
    }

    fn compile_all(&mut self, choices: &[Vec<Node>], next: usize) -> Vec<usize> {
        choices.iter().map(|nodes| self.compile(nodes, next)).collect()
    }

    fn push(&mut self, state: NfaState) -> usize {
        self.states.push(state);
        self.states.len() - 1
    }
}

/// One position in a name. The character is `None` at the end. A leading dot may require a literal dot.
struct InputChar {
    c: Option<char>,
    is_hidden: bool,
}

fn is(values: &[bool], id: usize) -> bool {
    values.get(id).copied().unwrap_or(false)
}

/// Folds the case of a character for comparison.
pub(super) fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) => lower,
        _ => c,
    }
}

struct Parser<'a> {
    text: &'a [char],
    /// For every position, whether a closed group begins there.
    closed: Vec<bool>,
    at: usize,
}

impl Parser<'_> {
    /// Parses up to the end of the text or, in a group, to its next `|` or `)`.
    fn sequence(&mut self, depth: usize) -> Vec<Node> {
        let mut nodes = Vec::new();
        while let Some(&c) = self.text.get(self.at) {
            if 0 < depth && matches!(c, '|' | ')') {
                break;
            }

            let is_group = depth < MAX_DEPTH && self.closed.get(self.at) == Some(&true);
            let class = self.text.get(self.at..).filter(|_| c == '[').and_then(Class::parse);
            let node = match (c, class) {
                _ if is_group => Node::Group(c, self.choices(depth + 1)),
                (_, Some((class, len))) => {
                    self.at += len - 1;
                    Node::Class(class)
                }
                ('?', None) => Node::Any,
                ('*', None) => Node::Star,
                (c, None) => Node::Char(fold(c)),
            };

            self.at += 1;
            // Two consecutive stars are equivalent to one.
            if !matches!((&node, nodes.last()), (Node::Star, Some(Node::Star))) {
                nodes.push(node);
            }
        }
        nodes
    }

    /// Parses the alternatives of the group that begins here, and stops at its `)`.
    fn choices(&mut self, depth: usize) -> Vec<Vec<Node>> {
        let mut choices = Vec::new();
        // Skip the operator, then the parenthesis and each bar.
        self.at += 1;
        while self.text.get(self.at).is_some_and(|c| *c != ')' || choices.is_empty()) {
            self.at += 1;
            choices.push(self.sequence(depth));
        }
        choices
    }
}

/// Marks the positions where closed groups begin. Parentheses inside classes are ignored.
fn closed_groups(text: &[char]) -> Vec<bool> {
    let mut closed = vec![false; text.len()];
    let mut open = Vec::new();
    let mut at = 0;

    while let Some(c) = text.get(at) {
        let class = text.get(at..).filter(|_| *c == '[').and_then(Class::parse);
        if let Some((_, len)) = class {
            at += len;
        } else if "?*+@!".contains(*c) && text.get(at + 1) == Some(&'(') {
            open.push(at);
            at += 2;
        } else {
            if *c == ')'
                && let Some(closed) = open.pop().and_then(|begin| closed.get_mut(begin))
            {
                *closed = true;
            }
            at += 1;
        }
    }

    closed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn matches(pattern: &str, name: &str, with_dot: bool) -> bool {
        let name: Vec<char> = name.chars().map(fold).collect();
        Segment::parse(pattern).is_match(&name, with_dot)
    }

    #[test]
    fn a_component_matches_what_minimatch_says() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("a.ts", &["a.ts", "A.TS"], &["a.tsx", "b.a.ts", "a_ts"]),
            ("*.ts", &["a.ts", "a.b.ts"], &[".ts", ".a.ts", "a.tsx", "ts"]),
            ("*", &["a", "a b"], &[".a"]),
            ("?.rs", &["a.rs", "🦆.rs"], &[".rs", "ab.rs", "..rs"]),
            ("a**b", &["ab", "axxb"], &["a", "axx"]),
            (".*", &[".a", "."], &["a"]),
            ("[!a]", &["b"], &["a", "A", "bc", "."]),
            ("[[:alpha:]]", &["é", "Z"], &["1"]),
            ("[a", &["[a", "[A"], &["a"]),
            ("a[z-a]", &[], &["a", "az"]),
            ("@(a|b)", &["a", "B"], &["c", "ab", "", "@(a|b)"]),
            ("x?(a|b)", &["x", "xa", "xb"], &["xab"]),
            ("*(a|b)", &["a", "abba"], &["c", "abc"]),
            ("+(ab|c)d", &["abd", "ccabd"], &["d", "abab"]),
            ("+(a|!(b))c", &["xc", "c", "ac"], &["x", "bc"]),
            ("!(*.ts)", &["a.rs", "ts"], &["a.ts", ".a"]),
            ("!(a|b).js", &["c.js", "ab.js"], &["a.js", "b.js", "c.ts"]),
            ("x!(a)*", &["x", "xb"], &["xa", "xab"]),
            ("x!()", &["xy"], &["x"]),
            ("x@(a|!(b))c", &["xac", "xcc"], &["xbc"]),
            ("@(.a|b)x", &[".ax", "bx"], &["ax"]),
            ("*(a|*(b))c", &["c", "aabbc", "ababc"], &["aabb"]),
            ("*(*(*(a)))b", &["b", "aaab"], &["aaa"]),
            ("@(a|[)])", &["a", ")"], &["[", "|"]),
            ("@(a|b", &["@(a|b"], &["a"]),
            ("a)b|c(d", &["a)b|c(d"], &["a"]),
            ("@(x@(y)", &["@(xy"], &["xy"]),
            ("É*", &["éa", "Éa"], &["ea"]),
            ("", &[""], &["a"]),
        ];
        for (pattern, yes, no) in cases {
            for name in *yes {
                assert!(matches(pattern, name, false), "{pattern} must match {name}");
            }
            for name in *no {
                assert!(!matches(pattern, name, false), "{pattern} must not match {name}");
            }
        }
        for (pattern, name) in [("*", ".a"), ("?a", ".a"), ("!(b)", ".a"), ("[.]a", ".a")] {
            assert!(matches(pattern, name, true), "{pattern} must match {name} with dots");
        }
    }

    #[test]
    fn a_hostile_component_takes_no_longer_than_its_length() {
        let name = "a".repeat(255);
        let started = Instant::now();
        for pattern in [
            format!("{}b", "*a".repeat(500)),
            format!("{}b", "*(a|aa)".repeat(200)),
            format!("{}{}", "+(a|".repeat(400), ")".repeat(400)),
            "!(a".repeat(400) + &")".repeat(400),
            "@(".repeat(1000),
            "[".repeat(1000),
        ] {
            assert!(!matches(&pattern, &name, false) || pattern.starts_with("!("), "{pattern:.20}");
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    }
}
