//! What kinds of values there are: how each is read from the file and from a variable, and shown. The
//! table of keys says which key is of which kind and where its value is kept.

use crate::check;
use crate::{Config, Origin, Setting};
use serde_json::Value as Json;
use std::fmt;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;

/// Most words of a list.
const MAX_WORDS: usize = 256;

/// Where a key's value is kept.
pub(crate) struct Field<T> {
    pub(crate) get: fn(&Config) -> &Setting<T>,
    pub(crate) get_mut: fn(&mut Config) -> &mut Setting<T>,
}

impl<T> Field<T> {
    fn set(&self, config: &mut Config, value: T, origin: Origin) {
        *(self.get_mut)(config) = Setting { value, origin };
    }
}

impl<T> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Field")
    }
}

/// The kind of a key's value, what bounds it, and where it is kept.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A length of time, written as a number of units.
    Time { field: Field<Duration>, unit_s: u64, min: u64, max: u64 },
    /// A number of things.
    Count { field: Field<usize>, min: u64, max: u64 },
    /// True or false.
    Switch { field: Field<bool> },
    /// A text. The only kind that a variable can give.
    Text {
        field: Field<String>,
        values: &'static str,
        variable: Option<&'static str>,
        check: fn(&str) -> Result<(), String>,
    },
    /// Texts in their order; the check gets the index too.
    Words {
        field: Field<Vec<String>>,
        values: &'static str,
        check: fn(usize, &str) -> Result<(), String>,
    },
}

/// Why a value of the file is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Where it stands, in bytes from the file's beginning.
    pub(crate) at: usize,
    /// What it must be and what it is, a verb phrase.
    pub(crate) message: String,
}

impl Kind {
    /// Reads a value of the file and keeps it.
    pub(crate) fn read(
        &self,
        config: &mut Config,
        value: &Spanned<DeValue<'_>>,
        origin: Origin,
    ) -> Result<(), Refusal> {
        match self {
            Self::Time { field, unit_s, min, max } => {
                let n = whole(value, *min, *max)?;
                field.set(config, Duration::from_secs(n.saturating_mul(*unit_s)), origin);
            }
            Self::Count { field, min, max } => {
                let n = whole(value, *min, *max)?;
                field.set(config, usize::try_from(n).unwrap_or(usize::MAX), origin);
            }
            Self::Switch { field } => match value.get_ref().as_bool() {
                Some(is_on) => field.set(config, is_on, origin),
                None => return Err(refusal(value, "must be true or false")),
            },
            Self::Text { field, check, .. } => {
                let checked = text(value, "must be a string")?;
                check(checked).map_err(|message| Refusal { at: value.span().start, message })?;
                field.set(config, checked.to_owned(), origin);
            }
            Self::Words { field, check, .. } => field.set(config, words(value, *check)?, origin),
        }
        Ok(())
    }

    /// The variable that can give the value.
    pub(crate) fn variable(&self) -> Option<&'static str> {
        match self {
            Self::Text { variable, .. } => *variable,
            _ => None,
        }
    }

    /// Takes the value from its variable, if there is one and it is set to more than white space.
    pub(crate) fn read_variable(
        &self,
        config: &mut Config,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), (&'static str, String)> {
        let Self::Text { field, variable: Some(variable), check, .. } = self else { return Ok(()) };
        let Some(given) = env(variable) else { return Ok(()) };
        let given = given.trim();
        if given.is_empty() {
            return Ok(());
        }
        check::plain(given).and_then(|()| check(given)).map_err(|message| (*variable, message))?;
        field.set(config, given.to_owned(), Origin::Environment { variable });
        Ok(())
    }

    /// What the value may be, for people.
    pub(crate) fn values(&self) -> String {
        match self {
            Self::Time { min, max, .. } | Self::Count { min, max, .. } => format!("{min} to {max}"),
            Self::Switch { .. } => "true or false".to_owned(),
            Self::Text { values, .. } | Self::Words { values, .. } => (*values).to_owned(),
        }
    }

    /// The value as it would be written, and where it comes from.
    pub(crate) fn show<'a>(&self, config: &'a Config) -> (Json, &'a Origin) {
        match self {
            Self::Time { field, unit_s, .. } => {
                let setting = (field.get)(config);
                let units = setting.value.as_secs().checked_div(*unit_s);
                (units.unwrap_or_default().into(), &setting.origin)
            }
            Self::Count { field, .. } => shown((field.get)(config)),
            Self::Switch { field } => shown((field.get)(config)),
            Self::Text { field, .. } => shown((field.get)(config)),
            Self::Words { field, .. } => shown((field.get)(config)),
        }
    }
}

fn shown<T: Clone + Into<Json>>(setting: &Setting<T>) -> (Json, &Origin) {
    (setting.value.clone().into(), &setting.origin)
}

fn whole(value: &Spanned<DeValue<'_>>, min: u64, max: u64) -> Result<u64, Refusal> {
    let wanted = format!("must be a whole number from {min} to {max}");
    let Some(number) = value.get_ref().as_integer() else { return Err(refusal(value, &wanted)) };
    let read = u64::from_str_radix(number.as_str(), number.radix()).ok();
    read.filter(|n| (min..=max).contains(n)).ok_or_else(|| Refusal {
        at: value.span().start,
        message: format!("{wanted}, not {}", crate::error::excerpt(&number.to_string())),
    })
}

fn text<'a>(value: &'a Spanned<DeValue<'_>>, wanted: &str) -> Result<&'a str, Refusal> {
    let text = value.get_ref().as_str().ok_or_else(|| refusal(value, wanted))?;
    check::plain(text).map_err(|message| Refusal { at: value.span().start, message })?;
    Ok(text)
}

fn words(
    value: &Spanned<DeValue<'_>>,
    check: fn(usize, &str) -> Result<(), String>,
) -> Result<Vec<String>, Refusal> {
    let wanted = "must be an array of strings";
    let array = value.get_ref().as_array().ok_or_else(|| refusal(value, wanted))?;
    if MAX_WORDS < array.len() {
        let message = format!("must have at most {MAX_WORDS} strings, not {}", array.len());
        return Err(Refusal { at: value.span().start, message });
    }
    let mut words = Vec::with_capacity(array.len());
    for (index, element) in array.iter().enumerate() {
        let word = text(element, "must hold strings only")?;
        check(index, word).map_err(|message| Refusal { at: element.span().start, message })?;
        words.push(word.to_owned());
    }
    Ok(words)
}

/// A value of another kind than the one that is wanted.
fn refusal(value: &Spanned<DeValue<'_>>, wanted: &str) -> Refusal {
    let kind = value.get_ref().type_str();
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    Refusal { at: value.span().start, message: format!("{wanted}, not {article} {kind}") }
}
