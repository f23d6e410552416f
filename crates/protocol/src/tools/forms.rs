//! The forms of arguments: which values count, and what happens to others.
//!
//! A plain type takes only its own values. Another value counts as absent, as clients of the first tools expect. A
//! [`Checked`] type also takes near misses, such as a number in a text, and keeps an error for the rest.
//! Voice models send such values. This leniency is part of the wire.

use super::arguments::{Argument, Form};
use super::bad_parameter::BadParameter;
use super::row::Kind;
use crate::white_space::trim;
use serde_json::Value;

/// A value, or the reason for rejecting it. The tool rejects the call when it uses the argument: an argument that the
/// call does not need may have any value.
pub type Checked<T> = Result<T, BadParameter>;

/// An argument that one of the tool's groups reads.
#[derive(Debug, Clone, Copy)]
pub struct Grouped;

/// A text that may be empty or blank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MayBeEmpty(pub Option<String>);

/// A text that may be blank, but not empty. An alias with a text replaces an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotEmpty(pub Option<String>);

/// A background job: a text, trimmed, or a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReference(pub Option<String>);

/// A whole number, or a text of its digits. A blank text is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digits(pub Option<u64>);

/// A whole number from 1. A text of digits is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FromOne(pub Option<u64>);

/// Number of rows in an answer. Only pages have an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Rows of a page.
    pub of_page: usize,
    /// Rows of an answer that is sent while it is found.
    pub of_stream: usize,
}

/// First and last line, both included, from 1.
pub type Lines = (u64, u64);

/// Numbers that a replacement must have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of files.
    pub files: Option<u64>,
    /// Number of lines.
    pub lines: Option<u64>,
    /// Number of replacements.
    pub replacements: Option<u64>,
}

impl Limit {
    /// Returns the limit of an answer.
    #[must_use]
    pub fn of(self, has_pages: bool) -> usize {
        if has_pages { self.of_page } else { self.of_stream }
    }
}

impl Counts {
    /// Names of the numbers, in the order of the fields.
    pub const NAMES: &'static [&'static str; 3] = &["files", "lines", "replacements"];
}

impl Form for Grouped {
    fn read(_argument: Argument<'_>) -> Self {
        Self
    }
}

/// The first text that is not blank, unchanged.
impl Form for Option<String> {
    fn read(argument: Argument<'_>) -> Self {
        let mut texts = argument.values().filter_map(|(_, value)| value.as_str());
        texts.find(|text| !trim(text).is_empty()).map(str::to_owned)
    }
}

/// The first text.
impl Form for MayBeEmpty {
    fn read(argument: Argument<'_>) -> Self {
        let text = argument.values().find_map(|(_, value)| value.as_str());
        Self(text.map(str::to_owned))
    }
}

impl Form for NotEmpty {
    fn read(argument: Argument<'_>) -> Self {
        let mut texts = argument.values().filter_map(|(_, value)| value.as_str());
        Self(texts.find(|text| !text.is_empty()).map(str::to_owned))
    }
}

/// Whether the value is literally `true`. `"true"` and 1 do not count.
impl Form for bool {
    fn read(argument: Argument<'_>) -> Self {
        argument.values().any(|(_, value)| value.as_bool() == Some(true))
    }
}

/// A whole number. A text and 3.0 do not count.
impl Form for Option<u64> {
    fn read(argument: Argument<'_>) -> Self {
        argument.values().find_map(|(_, value)| value.as_u64())
    }
}

/// Any value. The tool checks it.
impl Form for Option<Value> {
    fn read(argument: Argument<'_>) -> Self {
        argument.values().next().map(|(_, value)| value.clone())
    }
}

/// The texts of the first list with one that is not blank, trimmed and without blank ones.
impl Form for Vec<String> {
    fn read(argument: Argument<'_>) -> Self {
        let lists = argument.values().filter_map(|(_, value)| value.as_array());
        let mut texts = lists.map(|list| {
            let texts = list.iter().filter_map(Value::as_str).map(trim);
            texts.filter(|text| !text.is_empty()).map(str::to_owned).collect::<Self>()
        });
        texts.find(|texts| !texts.is_empty()).unwrap_or_default()
    }
}

impl Form for JobReference {
    fn read(argument: Argument<'_>) -> Self {
        let text = <Option<String> as Form>::read(argument).map(|text| text.trim().to_owned());
        let number = || <Option<u64> as Form>::read(argument).map(|number| number.to_string());
        Self(text.or_else(number))
    }
}

/// Type of an argument whose other values are errors.
trait Check: Sized {
    fn check(argument: Argument<'_>) -> Checked<Self>;
}

impl<T: Check> Form for Checked<T> {
    fn read(argument: Argument<'_>) -> Self {
        T::check(argument)
    }
}

/// A text that may be empty, but must be given.
impl Check for String {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let name = argument.parameter().map_or("", |parameter| parameter.name);
        MayBeEmpty::check(argument)?.0.ok_or(BadParameter::Missing(name))
    }
}

impl Check for MayBeEmpty {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = argument.values().next() else { return Ok(Self(None)) };
        one_text(value).map(|text| Self(Some(text))).ok_or_else(|| wrong(name, "a text"))
    }
}

/// A text. A number or a boolean is converted to text.
impl Check for Option<String> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = first(argument) else { return Ok(default_text(argument)) };
        one_text(value).map(Some).ok_or_else(|| wrong(name, "a text"))
    }
}

/// A list of texts, or a single text as a list. Blank texts are skipped.
impl Check for Vec<String> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let given = Option::<Self>::check(argument)?;
        Ok(given.unwrap_or_else(|| default_text(argument).into_iter().collect()))
    }
}

/// Like a list of texts, but `None` without a value.
impl Check for Option<Vec<String>> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = first(argument) else { return Ok(None) };
        let texts: Self = match value {
            Value::Array(values) => values.iter().map(one_text).collect(),
            single => one_text(single).map(|text| vec![text]),
        };
        let mut texts = texts.ok_or_else(|| wrong(name, "a text or a list of texts"))?;
        texts.retain(|text| !is_blank(text, argument));
        Ok(Some(texts))
    }
}

/// A flag: `true`, `"true"`, `"yes"`, 1 and their opposites. `None` for `"auto"`, if the parameter has it.
impl Check for Option<bool> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = first(argument) else {
            return Ok(argument.default().and_then(|value| value.as_bool()));
        };
        let has_auto = argument.parameter().is_some_and(|it| it.kind == Kind::FlagOrAuto);
        match one_flag(value) {
            Some(flag) => Ok(Some(flag)),
            None if has_auto && is_word(value, "auto") => Ok(None),
            None if has_auto => Err(wrong(name, "true, false or auto")),
            None => Err(wrong(name, "true or false")),
        }
    }
}

/// A flag that is false by default.
impl Check for bool {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        Ok(Option::<Self>::check(argument)?.unwrap_or_default())
    }
}

/// A whole number, brought into the bounds of the parameter. Digits in a text count.
impl Check for Option<u64> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        Ok(any_whole(argument)?.map(|number| within_bounds(argument, number)))
    }
}

impl Check for u64 {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        Ok(Option::<Self>::check(argument)?.unwrap_or_default())
    }
}

impl Check for Option<usize> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        Ok(Option::<u64>::check(argument)?.map(size))
    }
}

impl Check for usize {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        u64::check(argument).map(size)
    }
}

impl Check for Limit {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let number = any_whole(argument)?.unwrap_or_default();
        Ok(Self { of_page: size(within_bounds(argument, number)), of_stream: size(number) })
    }
}

/// One of the parameter's words, by the word, another spelling, or a flag. `None` without a value.
impl Check for Option<&'static str> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = first(argument) else { return Ok(None) };
        let flags = match argument.parameter().map(|parameter| parameter.kind) {
            Some(Kind::ChoiceOrFlag(_, yes, no)) => Some((yes, no)),
            _ => None,
        };
        let by_flag = || {
            let (yes, no) = flags?;
            one_flag(value).map(|flag| if flag { yes } else { no })
        };

        let word = one_word(argument, value).or_else(by_flag);
        let refuse = || wrong(name, &format!("one of {}", words(argument).join(", ")));
        word.map(Some).ok_or_else(refuse)
    }
}

/// One of the parameter's words, or its default.
impl Check for &'static str {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let choice = Option::<Self>::check(argument)?;
        let default = default_text(argument);
        let usual = || words(argument).iter().find(|word| default.as_deref() == Some(**word));
        Ok(choice.or_else(|| usual().copied()).unwrap_or_default())
    }
}

/// Some of the parameter's words. Empty without a value.
impl Check for Vec<&'static str> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = first(argument) else { return Ok(Self::new()) };
        let all: Vec<&Value> = match value {
            Value::Array(values) => values.iter().collect(),
            single => vec![single],
        };
        let choices: Option<Self> =
            all.into_iter().map(|value| one_word(argument, value)).collect();
        choices.ok_or_else(|| wrong(name, &format!("some of {}", words(argument).join(", "))))
    }
}

impl Check for Option<Lines> {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = first(argument) else { return Ok(None) };
        let numbers =
            value.as_array().map(|all| all.iter().filter_map(one_number).collect::<Vec<_>>());
        match numbers.as_deref() {
            Some([first, last]) if 1 <= *first && first <= last => Ok(Some((*first, *last))),
            _ => Err(wrong(name, "the first and the last line, such as [10, 20]")),
        }
    }
}

impl Check for Counts {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = first(argument) else { return Ok(Self::default()) };
        let refuse = || {
            let names = Self::NAMES.join(", ");
            wrong(name, &format!("an object with some of {names}, all whole numbers"))
        };

        let object = value.as_object().ok_or_else(refuse)?;
        if object.keys().any(|key| !Self::NAMES.contains(&key.as_str())) {
            return Err(refuse());
        }

        let number = |name: &str| match object.get(name).filter(|value| !value.is_null()) {
            Some(value) => one_number(value).map(Some).ok_or_else(refuse),
            None => Ok(None),
        };

        let [files, lines, replacements] = Self::NAMES.map(number);
        Ok(Self { files: files?, lines: lines?, replacements: replacements? })
    }
}

impl Check for Digits {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = argument.values().next() else { return Ok(Self(None)) };
        let number = match value {
            Value::String(text) => text.trim().parse().ok(),
            value => value.as_u64(),
        };

        let number = number.ok_or_else(|| wrong(name, "a whole number"))?;
        Ok(Self(Some(number)))
    }
}

impl Check for FromOne {
    fn check(argument: Argument<'_>) -> Checked<Self> {
        let Some((name, value)) = argument.values().next() else { return Ok(Self(None)) };
        let number = value.as_u64().filter(|number| 0 < *number);
        let number = number.ok_or_else(|| wrong(name, "a whole number from 1"))?;
        Ok(Self(Some(number)))
    }
}

fn wrong(name: &str, wanted: &str) -> BadParameter {
    BadParameter::Wrong { name: name.to_owned(), wanted: wanted.to_owned() }
}

/// Returns the first value that is not blank, with the name or alias that the call uses.
fn first(argument: Argument<'_>) -> Option<(&'static str, &Value)> {
    let is_there = |value: &Value| value.as_str().is_none_or(|text| !is_blank(text, argument));
    argument.values().find(|(_, value)| is_there(value))
}

/// Whether a text counts as absent. Patterns may consist of blanks. For other parameters, models send blank text to
/// mean nothing.
fn is_blank(text: &str, argument: Argument<'_>) -> bool {
    if argument.parameter().is_some_and(|parameter| parameter.name == "pattern") {
        return text.is_empty();
    }
    text.trim().is_empty()
}

fn default_text(argument: Argument<'_>) -> Option<String> {
    argument.default()?.as_str().map(str::to_owned)
}

fn one_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn one_flag(value: &Value) -> Option<bool> {
    const YES: [&str; 4] = ["true", "yes", "on", "1"];
    const NO: [&str; 4] = ["false", "no", "off", "0"];

    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => match number.as_u64() {
            Some(1) => Some(true),
            Some(0) => Some(false),
            _ => None,
        },
        text if YES.iter().any(|word| is_word(text, word)) => Some(true),
        text if NO.iter().any(|word| is_word(text, word)) => Some(false),
        _ => None,
    }
}

/// Returns a whole number of any size, or the default.
fn any_whole(argument: Argument<'_>) -> Checked<Option<u64>> {
    let Some((name, value)) = first(argument) else {
        return Ok(argument.default().and_then(|value| value.as_u64()));
    };
    one_number(value).map(Some).ok_or_else(|| wrong(name, "a whole number"))
}

fn within_bounds(argument: Argument<'_>, number: u64) -> u64 {
    match argument.parameter().map(|parameter| parameter.kind) {
        Some(Kind::Whole(least, most)) => number.clamp(least, most),
        _ => number,
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn one_number(value: &Value) -> Option<u64> {
    match value {
        // A whole number, including the form 3.0.
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(exactly)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Returns the whole number that a float represents. From 2^53 on, floats have gaps, so larger numbers are rejected.
fn exactly(number: f64) -> Option<u64> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0 || !(0.0..MOST).contains(&number) {
        return None;
    }
    // Convert through the decimal digits: every numeric conversion may lose precision.
    format!("{number:.0}").parse().ok()
}

fn is_word(value: &Value, word: &str) -> bool {
    value.as_str().is_some_and(|text| text.trim().eq_ignore_ascii_case(word))
}

fn words(argument: Argument<'_>) -> &'static [&'static str] {
    match argument.parameter().map(|parameter| parameter.kind) {
        Some(Kind::Choice(words) | Kind::Choices(words) | Kind::ChoiceOrFlag(words, ..)) => words,
        _ => &[],
    }
}

/// Returns the word that a value means.
fn one_word(argument: Argument<'_>, value: &Value) -> Option<&'static str> {
    let word = words(argument).iter().find(|word| is_word(value, word)).copied();
    let spelled = || {
        let mut spellings = argument.parameter()?.spellings.iter();
        spellings.find(|(from, _)| is_word(value, from)).map(|(_, to)| *to)
    };
    word.or_else(spelled)
}

#[cfg(test)]
mod tests;
