//! The kinds of values. Each kind is read from the file and from a variable, and shown. The table of keys names the
//! kind and the field of each key.

use crate::error::excerpt;
use crate::secret::SHOWN;
use crate::validate;
use crate::{Config, Dollars, Origin, Secret, Setting};
use serde_json::Value as Json;
use std::fmt;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;

/// Maximum length of a secret, in bytes.
const MAX_SECRET_BYTES: usize = 4096;

/// Maximum number of words in a list.
const MAX_WORDS: usize = 256;

/// Access to the field of [`Config`] that stores a key's value.
#[derive(Clone)]
pub(crate) struct FieldAccessor<T> {
    pub(crate) get: fn(&Config) -> &Setting<T>,
    pub(crate) get_mut: fn(&mut Config) -> &mut Setting<T>,
}

impl<T> FieldAccessor<T> {
    fn set(&self, config: &mut Config, value: T, origin: Origin) {
        *(self.get_mut)(config) = Setting { value, origin };
    }
}

impl<T> fmt::Debug for FieldAccessor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FieldAccessor")
    }
}

/// Access to a field that stores one of a closed set of values, by their words.
#[derive(Debug, Clone)]
pub(crate) struct ChoiceAccessor {
    pub(crate) words: fn() -> Vec<&'static str>,
    pub(crate) get: fn(&Config) -> (&'static str, &Origin),
    /// Stores the value with this index in `words`.
    pub(crate) set: fn(&mut Config, usize, Origin),
}

impl ChoiceAccessor {
    fn read(&self, config: &mut Config, word: &str, origin: Origin) -> Result<(), String> {
        let words = (self.words)();
        let index = words.iter().position(|known| *known == word);
        let index = index.ok_or_else(|| {
            format!("must be one of {}, not `{}`", words.join(", "), excerpt(word))
        })?;
        (self.set)(config, index, origin);
        Ok(())
    }
}

/// The smallest number of minutes: one second, rounded up.
const MIN_MINUTES: &str = "0.02";

/// Word for a number that depends on the machine.
const AUTO: &str = "auto";

/// Kind of a key's value, with its bounds and its field.
#[derive(Debug, Clone)]
pub(crate) enum ValueKind {
    /// A duration, written as a number of units.
    Time { field: FieldAccessor<Duration>, unit_s: u64, min: u64, max: u64 },
    /// A duration in minutes, at least one second. May have a fraction.
    Minutes { field: FieldAccessor<Duration>, max: u64 },
    /// A whole number within bounds.
    Count { field: FieldAccessor<usize>, min: u64, max: u64 },
    /// A whole number within bounds, 0 or [`AUTO`].
    AutoCount { field: FieldAccessor<Option<usize>>, min: u64, max: u64 },
    /// An amount of US dollars. May have a fraction.
    Dollars { field: FieldAccessor<Dollars>, max: u64 },
    /// True or false.
    Switch { field: FieldAccessor<bool> },
    /// One of a closed set of words.
    Choice { field: ChoiceAccessor, variable: Option<&'static str> },
    /// A text with its own check.
    Text {
        field: FieldAccessor<String>,
        values: &'static str,
        variable: Option<&'static str>,
        check: fn(&str) -> Result<(), String>,
    },
    /// A secret. Neither an error nor `show` repeats it.
    Secret { field: FieldAccessor<Secret> },
    /// Texts in order. The check also gets the index.
    Words {
        field: FieldAccessor<Vec<String>>,
        values: &'static str,
        check: fn(usize, &str) -> Result<(), String>,
    },
}

/// An invalid value in the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ValueError {
    /// Position of the value, in bytes from the start of the file.
    pub(crate) at: usize,
    /// The requirement and the actual value, as a verb phrase.
    pub(crate) message: String,
}

impl ValueKind {
    /// Reads a value of the file, checks it against the kind, and stores it with its origin.
    pub(crate) fn read(
        &self,
        config: &mut Config,
        value: &Spanned<DeValue<'_>>,
        origin: Origin,
    ) -> Result<(), ValueError> {
        match self {
            Self::Time { field, unit_s, min, max } => {
                let n = whole(value, *min, *max)?;
                field.set(config, Duration::from_secs(n.saturating_mul(*unit_s)), origin);
            }
            Self::Minutes { field, max } => field.set(config, minutes(value, *max)?, origin),
            Self::Count { field, min, max } => {
                let n = whole(value, *min, *max)?;
                field.set(config, usize::try_from(n).unwrap_or(usize::MAX), origin);
            }
            Self::AutoCount { field, min, max } => {
                field.set(config, auto_count(value, *min, *max)?, origin);
            }
            Self::Dollars { field, max } => field.set(config, dollars(value, *max)?, origin),
            Self::Switch { field } => match value.get_ref().as_bool() {
                Some(is_on) => field.set(config, is_on, origin),
                None => return Err(refusal(value, "must be true or false")),
            },
            Self::Choice { field, .. } => {
                // `sandbox.network` was a boolean once.
                let switch =
                    value.get_ref().as_bool().map(|is_on| if is_on { "on" } else { "off" });
                let known = switch.filter(|word| (field.words)().contains(word));
                let word = known.map_or_else(|| text(value, "must be a string"), Ok)?;
                let at = value.span().start;
                field.read(config, word, origin).map_err(|message| ValueError { at, message })?;
            }
            Self::Text { field, check, .. } => {
                let checked = text(value, "must be a string")?;
                check(checked).map_err(|message| ValueError { at: value.span().start, message })?;
                field.set(config, checked.to_owned(), origin);
            }
            Self::Secret { field } => field.set(config, secret(value)?, origin),
            Self::Words { field, check, .. } => field.set(config, words(value, *check)?, origin),
        }
        Ok(())
    }

    /// Returns the variable that can set the value.
    pub(crate) fn variable(&self) -> Option<&'static str> {
        match self {
            Self::Text { variable, .. } | Self::Choice { variable, .. } => *variable,
            _ => None,
        }
    }

    /// Reads the value from its variable, if that is set to more than white space.
    pub(crate) fn read_variable(
        &self,
        config: &mut Config,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), (&'static str, String)> {
        // Only few keys have a variable.
        let Some(variable) = self.variable() else { return Ok(()) };
        let Some(text) = env(variable) else { return Ok(()) };
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }

        let origin = Origin::Environment { variable };
        let read = validate::plain(text).and_then(|()| match self {
            Self::Text { field, check, .. } => {
                check(text).map(|()| field.set(config, text.to_owned(), origin))
            }
            Self::Choice { field, .. } => field.read(config, text, origin),
            _ => Ok(()),
        });

        read.map_err(|message| (variable, message))
    }

    /// Returns the permitted values, for display.
    pub(crate) fn values(&self) -> String {
        match self {
            Self::Time { min, max, .. } | Self::Count { min, max, .. } => format!("{min} to {max}"),
            Self::AutoCount { min, max, .. } => format!("{AUTO}, 0, or {min} to {max}"),
            Self::Minutes { max, .. } => format!("{MIN_MINUTES} to {max}"),
            Self::Dollars { max, .. } => format!("0 to {max}"),
            Self::Switch { .. } => "true or false".to_owned(),
            Self::Choice { field, .. } => (field.words)().join(", "),
            Self::Secret { .. } => "a secret".to_owned(),
            Self::Text { values, .. } | Self::Words { values, .. } => (*values).to_owned(),
        }
    }

    /// Returns the value in the notation of the file, and its origin.
    pub(crate) fn show<'a>(&self, config: &'a Config) -> (Json, &'a Origin) {
        match self {
            Self::Time { field, unit_s, .. } => {
                let setting = (field.get)(config);
                let units = setting.value.as_secs().checked_div(*unit_s);
                (units.unwrap_or_default().into(), &setting.origin)
            }
            Self::Minutes { field, .. } => {
                let setting = (field.get)(config);
                let seconds = setting.value.as_secs();
                // Whole minutes have no fraction.
                let value = match seconds % 60 {
                    0 => (seconds / 60).into(),
                    _ => (setting.value.as_secs_f64() / 60.0).into(),
                };
                (value, &setting.origin)
            }
            Self::Count { field, .. } => shown((field.get)(config)),
            Self::AutoCount { field, .. } => {
                let setting = (field.get)(config);
                (setting.value.map_or_else(|| AUTO.into(), Json::from), &setting.origin)
            }
            Self::Dollars { field, .. } => {
                let setting = (field.get)(config);
                let usd = setting.value.usd();
                let value = if usd.fract() == 0.0 {
                    #[expect(clippy::cast_possible_truncation, reason = "at most a million")]
                    let whole = usd as i64;
                    whole.into()
                } else {
                    usd.into()
                };
                (value, &setting.origin)
            }
            Self::Switch { field } => shown((field.get)(config)),
            Self::Choice { field, .. } => {
                let (word, origin) = (field.get)(config);
                (word.into(), origin)
            }
            Self::Text { field, .. } => shown((field.get)(config)),
            Self::Secret { field } => {
                let setting = (field.get)(config);
                (setting.value.shown().into(), &setting.origin)
            }
            Self::Words { field, .. } => shown((field.get)(config)),
        }
    }
}

fn shown<T: Clone + Into<Json>>(setting: &Setting<T>) -> (Json, &Origin) {
    (setting.value.clone().into(), &setting.origin)
}

fn whole(value: &Spanned<DeValue<'_>>, min: u64, max: u64) -> Result<u64, ValueError> {
    let requirement = format!("must be a whole number from {min} to {max}");
    let Some(number) = value.get_ref().as_integer() else {
        return Err(refusal(value, &requirement));
    };

    let read = u64::from_str_radix(number.as_str(), number.radix()).ok();
    read.filter(|n| (min..=max).contains(n)).ok_or_else(|| ValueError {
        at: value.span().start,
        message: format!("{requirement}, not {}", excerpt(&number.to_string())),
    })
}

/// Reads a whole number, or `None` for [`AUTO`].
fn auto_count(
    value: &Spanned<DeValue<'_>>,
    min: u64,
    max: u64,
) -> Result<Option<usize>, ValueError> {
    if value.get_ref().as_str() == Some(AUTO) {
        return Ok(None);
    }
    match whole(value, 0, 0).or_else(|_| whole(value, min, max)) {
        Ok(n) => Ok(Some(usize::try_from(n).unwrap_or(usize::MAX))),
        Err(error) => {
            let message = error.message.replacen("must be", &format!("must be `{AUTO}`, 0 or"), 1);
            Err(ValueError { message, ..error })
        }
    }
}

fn minutes(value: &Spanned<DeValue<'_>>, max: u64) -> Result<Duration, ValueError> {
    let Some(number) = value.get_ref().as_float() else {
        return Ok(Duration::from_secs(whole(value, 1, max)?.saturating_mul(60)));
    };

    let read: Option<f64> = number.as_str().parse().ok();
    let seconds = read.and_then(|n| Duration::try_from_secs_f64(n * 60.0).ok());
    let range = Duration::from_secs(1)..=Duration::from_secs(max * 60);
    seconds.filter(|seconds| range.contains(seconds)).ok_or_else(|| ValueError {
        at: value.span().start,
        message: format!("must be a number from {MIN_MINUTES} to {max}, not {number}"),
    })
}

fn dollars(value: &Spanned<DeValue<'_>>, max: u64) -> Result<Dollars, ValueError> {
    let requirement = format!("must be a number from 0 to {max}");
    let number = match value.get_ref() {
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        _ => return Err(refusal(value, &requirement)),
    };

    let most = Dollars::of(f64::from(u32::try_from(max).unwrap_or(u32::MAX)));
    let read = number.parse().ok().and_then(Dollars::of);
    read.filter(|read| Some(*read) <= most).ok_or_else(|| ValueError {
        at: value.span().start,
        message: format!("{requirement}, not {}", excerpt(&number)),
    })
}

fn text<'a>(value: &'a Spanned<DeValue<'_>>, requirement: &str) -> Result<&'a str, ValueError> {
    let text = value.get_ref().as_str().ok_or_else(|| refusal(value, requirement))?;
    validate::plain(text).map_err(|message| ValueError { at: value.span().start, message })?;
    Ok(text)
}

fn secret(value: &Spanned<DeValue<'_>>) -> Result<Secret, ValueError> {
    let text = value.get_ref().as_str().ok_or_else(|| refusal(value, "must be a string"))?;
    let is_sendable =
        text.len() <= MAX_SECRET_BYTES && text.trim().bytes().all(|b| b.is_ascii_graphic());

    let message = match text.trim() {
        SHOWN => format!(
            "must be the secret itself, not `{SHOWN}`, which `quack config show` prints in its place"
        ),
        _ if is_sendable => {
            let secret = Secret::new(text);
            match secret.check() {
                Ok(()) => return Ok(secret),
                Err(message) => message,
            }
        }
        _ => format!(
            "must have at most {MAX_SECRET_BYTES} characters, all of them printable ASCII without spaces"
        ),
    };
    Err(ValueError { at: value.span().start, message })
}

pub(crate) fn words(
    value: &Spanned<DeValue<'_>>,
    check: fn(usize, &str) -> Result<(), String>,
) -> Result<Vec<String>, ValueError> {
    let requirement = "must be an array of strings";
    let array = value.get_ref().as_array().ok_or_else(|| refusal(value, requirement))?;

    if MAX_WORDS < array.len() {
        let message = format!("must have at most {MAX_WORDS} strings, not {}", array.len());
        return Err(ValueError { at: value.span().start, message });
    }

    let mut words = Vec::with_capacity(array.len());
    for (index, element) in array.iter().enumerate() {
        let word = text(element, "must hold strings only")?;
        check(index, word).map_err(|message| ValueError { at: element.span().start, message })?;
        words.push(word.to_owned());
    }
    Ok(words)
}

/// Creates the error for a value of the wrong type.
pub(crate) fn refusal(value: &Spanned<DeValue<'_>>, requirement: &str) -> ValueError {
    let kind = value.get_ref().type_str();
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    ValueError { at: value.span().start, message: format!("{requirement}, not {article} {kind}") }
}
