//! An interpreter of the part of the profile language of macOS that quackd uses. A word that this file does not know is an
//! error. The last matching rule wins, as in Apple's documents. Used by the tests of the profile, which decide operation
//! by operation, and by the stand-in for `sandbox-exec`.

use regex::bytes::{Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::path::Path;

/// A parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    Word(String),
    Text(String),
    Pattern(Pattern),
    List(Vec<Self>),
}

/// A regular expression, which macOS applies to bytes.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(pub(crate) Regex);

impl Pattern {
    fn new(text: &str) -> Result<Self, String> {
        let regex = RegexBuilder::new(text).unicode(false).build();
        regex.map(Self).map_err(|error| error.to_string())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// Splits the profile into its top-level forms.
///
/// # Errors
/// Parentheses or quotes are not balanced, or a pattern is no regular expression.
pub(crate) fn parse(text: &str) -> Result<Vec<Form>, String> {
    let mut lists = vec![Vec::new()];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (form, length) = match first {
            '(' => {
                lists.push(Vec::new());
                rest = rest.strip_prefix('(').unwrap_or_default().trim_start();
                continue;
            }
            ')' => (Form::List(lists.pop().unwrap_or_default()), 1),
            '"' => {
                let text = quoted(rest.strip_prefix('"'))?;
                (Form::Text(text.to_owned()), text.len() + 2)
            }
            '#' => {
                let text = quoted(rest.strip_prefix("#\""))?;
                (Form::Pattern(Pattern::new(text)?), text.len() + 3)
            }
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || "()".contains(c));
                let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
                (Form::Word(word.to_owned()), word.len())
            }
        };
        lists.last_mut().ok_or("a parenthesis too much")?.push(form);
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    match (lists.pop(), lists.is_empty()) {
        (Some(forms), true) => Ok(forms),
        _ => Err("a parenthesis is missing".to_owned()),
    }
}

fn quoted(rest: Option<&str>) -> Result<&str, String> {
    let end = rest.and_then(|rest| rest.split_once('"'));
    end.map(|(text, _)| text).ok_or_else(|| "a quote is missing".to_owned())
}

/// Replaces the parameters of an expression by their values.
///
/// # Errors
/// A parameter has no value.
pub(crate) fn with_parameters(
    form: Form,
    parameters: &BTreeMap<&str, &str>,
) -> Result<Form, String> {
    let Form::List(words) = form else { return Ok(form) };
    if let [Form::Word(word), Form::Text(name)] = words.as_slice()
        && word == "param"
    {
        let value = parameters.get(name.as_str());
        let value = value.ok_or_else(|| format!("the parameter {name} has no value"))?;
        return Ok(Form::Text((*value).to_owned()));
    }
    let words = words.into_iter().map(|word| with_parameters(word, parameters));
    Ok(Form::List(words.collect::<Result<_, _>>()?))
}

/// The object of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Object<'a> {
    None,
    Path(&'a str),
    /// A symbolic link that is made.
    NewLink(&'a str),
    Service(&'a str),
    /// A process of the same sandbox.
    OwnProcess,
    /// A process outside of the sandbox.
    OtherProcess,
    UnixSocket(&'a str),
    /// Address and port of the network.
    Tcp(&'a str, u16),
    /// No rule names one.
    Udp,
}

/// Whether one of the operations of a rule contains this one.
pub(crate) fn is_meant(operations: &[Form], operation: &str) -> bool {
    operations.iter().any(|name| match name {
        Form::Word(name) if name == "default" => true,
        Form::Word(name) => match name.strip_suffix('*') {
            Some(start) => operation.starts_with(start),
            None => operation == name,
        },
        _ => false,
    })
}

/// The operations of a rule, and its filters.
pub(crate) fn parts(words: &[Form]) -> (&[Form], &[Form]) {
    let is_word = |form: &&Form| matches!(form, Form::Word(_));
    words.split_at(words.iter().take_while(is_word).count())
}

/// Decides by rules.
pub(crate) struct Interpreter<'a> {
    pub(crate) rules: &'a [Form],
}

impl Interpreter<'_> {
    /// Whether the rules allow an operation.
    ///
    /// # Errors
    /// A rule has a word that this file does not know, or no rule decides.
    pub(crate) fn allows(&self, operation: &str, object: Object<'_>) -> Result<bool, String> {
        let mut is_allowed = None;
        for rule in self.rules {
            let unknown = || format!("unknown rule: {rule:?}");
            let Form::List(words) = rule else { return Err(unknown()) };
            let [Form::Word(verb), words @ ..] = words.as_slice() else { return Err(unknown()) };
            let is_allow = match verb.as_str() {
                "version" => continue,
                "allow" => true,
                "deny" => false,
                _ => return Err(unknown()),
            };
            let (operations, filters) = parts(words);
            if !is_meant(operations, operation) {
                continue;
            }
            let mut matches = filters.is_empty();
            for filter in filters {
                matches |= Self::matches(filter, object)?;
            }
            is_allowed = if matches { Some(is_allow) } else { is_allowed };
        }
        is_allowed.ok_or_else(|| format!("no rule decides about {operation}"))
    }

    fn matches(filter: &Form, object: Object<'_>) -> Result<bool, String> {
        let unknown = || format!("unknown filter: {filter:?}");
        let Form::List(words) = filter else { return Err(unknown()) };
        if let [Form::Word(name), all @ ..] = words.as_slice()
            && ["require-all", "require-any"].contains(&name.as_str())
        {
            let mut results = all.iter().map(|filter| Self::matches(filter, object));
            let is_any = name == "require-any";
            return results.try_fold(!is_any, |all, one| {
                let one = one?;
                Ok(if is_any { all || one } else { all && one })
            });
        }
        let [Form::Word(name), value, rest @ ..] = words.as_slice() else { return Err(unknown()) };
        let path = match object {
            Object::Path(path) | Object::NewLink(path) | Object::UnixSocket(path) => {
                Some(Path::new(path))
            }
            _ => None,
        };
        Ok(match (name.as_str(), value, rest) {
            ("remote", Form::Word(kind), [Form::Text(address)]) if kind == "tcp4" => {
                let port = local_port(address).ok_or_else(unknown)?;
                matches!(object, Object::Tcp("127.0.0.1", given) if given == port)
            }
            ("remote", Form::Word(kind), []) if kind == "unix-socket" => {
                matches!(object, Object::UnixSocket(_))
            }
            ("literal", Form::Text(text), []) => path == Some(Path::new(text)),
            ("subpath", Form::Text(text), []) => path.is_some_and(|path| path.starts_with(text)),
            ("regex", Form::Pattern(Pattern(regex)), []) => {
                let path = path.and_then(Path::to_str);
                path.is_some_and(|path| regex.is_match(path.as_bytes()))
            }
            ("global-name", Form::Text(name), []) => {
                matches!(object, Object::Service(service) if service == name)
            }
            ("vnode-type", Form::Word(kind), []) if kind == "SYMLINK" => {
                matches!(object, Object::NewLink(_))
            }
            ("target", Form::Word(target), []) if target == "same-sandbox" => {
                matches!(object, Object::OwnProcess)
            }
            _ => return Err(unknown()),
        })
    }
}

/// Port of an address of this machine, as `localhost:1080`.
pub(crate) fn local_port(address: &str) -> Option<u16> {
    address.strip_prefix("localhost:")?.parse().ok()
}
