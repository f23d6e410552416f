//! Converts the arguments of a call to the types in the tool's parameter table.
//!
//! Owns the accepted forms of texts, numbers and flags, and the texts that reject everything else. Called by
//! the tools with many parameters. The tools of the Rubber Duck daemon use [`Arguments`] directly, because
//! their clients rely on ignored values.

use crate::arguments::Arguments;
use crate::caller_dir::CallerDir;
use quackd_protocol::tools::{self, Kind, Parameter, Tool};
use serde_json::Value;

/// Maximum edit distance at which an unknown name counts as a typing error.
const MAX_DISTANCE: usize = 3;

/// Number of characters of an unknown name that are repeated in the error.
const SHOWN_CHARS: usize = 60;

/// The arguments of a call of a known tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters<'a> {
    tool: &'static Tool,
    arguments: &'a Arguments,
}

/// Reason for rejecting a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadParameter {
    #[error("Missing required parameter '{0}'")]
    Missing(&'static str),
    #[error("Parameter '{name}' must be {wanted}")]
    Wrong { name: String, wanted: String },
    #[error("Unknown parameter '{name}'{}", .nearest.map(|near| format!(", did you mean '{near}'?")).unwrap_or_default())]
    Unknown { name: String, nearest: Option<&'static str> },
    #[error("{0}")]
    Other(String),
}

impl<'a> Parameters<'a> {
    /// Checks the parameter names, unless the tool ignores unknown ones.
    pub(crate) fn of(tool: &'static Tool, arguments: &'a Arguments) -> Result<Self, BadParameter> {
        if tool.is_strict
            && let Some(name) = arguments.names().find(|name| tool.meant_by(name).is_none())
        {
            return Err(BadParameter::Unknown {
                name: name.chars().take(SHOWN_CHARS).collect(),
                nearest: nearest(tool, name),
            });
        }
        Ok(Self { tool, arguments })
    }

    /// Like `of`, by the tool's name. A tool without a table has no parameters.
    pub(crate) fn named(tool: &str, arguments: &'a Arguments) -> Result<Self, BadParameter> {
        let found = tools::find(tool);
        Self::of(
            found.ok_or_else(|| BadParameter::Other(format!("Unknown tool '{tool}'")))?,
            arguments,
        )
    }

    /// Returns the directory of the caller.
    pub(crate) fn directory(&self) -> &'a CallerDir {
        self.arguments.directory()
    }

    /// Whether the call sets `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given(name).is_some()
    }

    /// Returns the value of `name`: the first of its aliases with a value. Null counts as absent, and so does a
    /// blank text, unless the parameter may be empty.
    fn given(&self, name: &str) -> Option<(Parameter, &'static str, &'a Value)> {
        let parameter = *self.tool.parameter(name)?;
        parameter
            .names()
            .filter_map(|name| Some((parameter, name, self.arguments.value(&[name])?)))
            .find(|(_, _, value)| !is_blank(value, parameter))
    }

    /// Returns a text. A number or a boolean is converted to text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, BadParameter> {
        let Some((_, said, value)) = self.given(name) else { return Ok(self.default_text(name)) };
        one_text(value).map(Some).ok_or_else(|| wrong(said, "a text"))
    }

    /// Returns a text that may be empty or blank. There is no default.
    pub(crate) fn any_text(&self, name: &str) -> Result<Option<String>, BadParameter> {
        let Some(parameter) = self.tool.parameter(name) else { return Ok(None) };
        let given = parameter.names().find_map(|name| Some((name, self.arguments.value(&[name])?)));
        let Some((said, value)) = given else { return Ok(None) };
        one_text(value).map(Some).ok_or_else(|| wrong(said, "a text"))
    }

    /// Returns a list of texts, or a single text as a list. Blank texts are skipped.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, BadParameter> {
        let Some((parameter, said, value)) = self.given(name) else {
            return Ok(self.default_text(name).into_iter().collect());
        };
        let texts = match value {
            Value::Array(values) => values.iter().map(one_text).collect::<Option<Vec<_>>>(),
            single => one_text(single).map(|text| vec![text]),
        };
        let mut texts = texts.ok_or_else(|| wrong(said, "a text or a list of texts"))?;
        texts.retain(|text| !is_blank(&Value::from(text.as_str()), parameter));
        Ok(texts)
    }

    /// Returns a flag: `true`, `"true"`, `"yes"`, 1 and their opposites.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, BadParameter> {
        let Some((_, said, value)) = self.given(name) else {
            return Ok(self.default(name).and_then(|value| value.as_bool()));
        };
        one_flag(value).map(Some).ok_or_else(|| wrong(said, "true or false"))
    }

    /// Returns a flag that is false by default.
    pub(crate) fn is_set(&self, name: &str) -> Result<bool, BadParameter> {
        Ok(self.flag(name)?.unwrap_or_default())
    }

    /// Returns true, false, or `None` for `"auto"` or an absent value.
    pub(crate) fn flag_or_auto(&self, name: &str) -> Result<Option<bool>, BadParameter> {
        let Some((_, said, value)) = self.given(name) else { return Ok(None) };
        match one_flag(value) {
            Some(flag) => Ok(Some(flag)),
            None if is_word(value, "auto") => Ok(None),
            None => Err(wrong(said, "true, false or auto")),
        }
    }

    /// Returns a whole number, clamped to the bounds of the parameter. Digits in a text count.
    pub(crate) fn whole(&self, name: &str) -> Result<Option<u64>, BadParameter> {
        let kind = self.tool.parameter(name).map(|parameter| parameter.kind);
        Ok(self.any_whole(name)?.map(|number| match kind {
            Some(Kind::Whole(least, most)) => number.clamp(least, most),
            _ => number,
        }))
    }

    /// Returns a whole number of any size.
    fn any_whole(&self, name: &str) -> Result<Option<u64>, BadParameter> {
        let Some((_, said, value)) = self.given(name) else {
            return Ok(self.default(name).and_then(|value| value.as_u64()));
        };
        one_number(value).map(Some).ok_or_else(|| wrong(said, "a whole number"))
    }

    /// Returns the limit of rows. Only pages have an upper bound.
    pub(crate) fn limit(&self, has_pages: bool) -> Result<usize, BadParameter> {
        let limit = if has_pages { self.whole("limit") } else { self.any_whole("limit") };
        Ok(limit?.map_or(0, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    /// Like [`Self::whole`], as `usize`.
    pub(crate) fn size(&self, name: &str) -> Result<Option<usize>, BadParameter> {
        Ok(self.whole(name)?.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }

    /// Returns one of the parameter's words. `spellings` are alternatives for some of them.
    pub(crate) fn choice(
        &self,
        name: &str,
        spellings: &[(&str, &'static str)],
    ) -> Result<Option<&'static str>, BadParameter> {
        let Some(parameter) = self.tool.parameter(name) else { return Ok(None) };
        let (words, flags) = match parameter.kind {
            Kind::Choice(words) | Kind::Choices(words) => (words, None),
            Kind::ChoiceOrFlag(words, yes, no) => (words, Some((yes, no))),
            _ => return Ok(None),
        };
        let Some((_, said, value)) = self.given(name) else {
            let default = self.default(name);
            let of = |word: &&&str| default.as_ref().is_some_and(|value| value == **word);
            return Ok(words.iter().find(of).copied());
        };
        let word = words.iter().find(|word| is_word(value, word)).copied();
        let spelled = || spellings.iter().find(|(from, _)| is_word(value, from)).map(|(_, to)| *to);
        let by_flag = || {
            let (yes, no) = flags?;
            one_flag(value).map(|flag| if flag { yes } else { no })
        };
        let found = word.or_else(spelled).or_else(by_flag);
        found.map(Some).ok_or_else(|| wrong(said, &format!("one of {}", words.join(", "))))
    }

    /// Returns some of the parameter's words. Empty if the parameter is absent.
    pub(crate) fn choices(
        &self,
        name: &str,
        spellings: &[(&str, &'static str)],
    ) -> Result<Vec<&'static str>, BadParameter> {
        let Some(Kind::Choices(words)) = self.tool.parameter(name).map(|it| it.kind) else {
            return Ok(Vec::new());
        };
        let Some((_, said, value)) = self.given(name) else { return Ok(Vec::new()) };
        let all: Vec<&Value> = match value {
            Value::Array(values) => values.iter().collect(),
            single => vec![single],
        };
        let found = all.into_iter().map(|value| {
            let word = words.iter().find(|word| is_word(value, word)).copied();
            word.or_else(|| {
                spellings.iter().find(|(from, _)| is_word(value, from)).map(|(_, to)| *to)
            })
        });
        let found: Option<Vec<_>> = found.collect();
        found.ok_or_else(|| wrong(said, &format!("some of {}", words.join(", "))))
    }

    /// Returns the first and the last line.
    pub(crate) fn lines(&self, name: &str) -> Result<Option<(u64, u64)>, BadParameter> {
        let Some((_, said, value)) = self.given(name) else { return Ok(None) };
        let numbers =
            value.as_array().map(|all| all.iter().filter_map(one_number).collect::<Vec<_>>());
        match numbers.as_deref() {
            Some([first, last]) if 1 <= *first && first <= last => Ok(Some((*first, *last))),
            _ => Err(wrong(said, "the first and the last line, such as [10, 20]")),
        }
    }

    /// Returns the number under `key` in an object.
    pub(crate) fn count(&self, name: &str, key: &str) -> Result<Option<u64>, BadParameter> {
        let Some((parameter, said, value)) = self.given(name) else { return Ok(None) };
        let Kind::Counts(keys) = parameter.kind else { return Ok(None) };
        let refuse = || {
            wrong(said, &format!("an object with some of {}, all whole numbers", keys.join(", ")))
        };
        let object = value.as_object().ok_or_else(refuse)?;
        if object.keys().any(|key| !keys.contains(&key.as_str())) {
            return Err(refuse());
        }
        match object.get(key).filter(|value| !value.is_null()) {
            Some(value) => one_number(value).map(Some).ok_or_else(refuse),
            None => Ok(None),
        }
    }

    fn default(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.tool.parameter(name)?.default?).ok()
    }

    fn default_text(&self, name: &str) -> Option<String> {
        self.default(name)?.as_str().map(str::to_owned)
    }
}

fn wrong(name: &str, wanted: &str) -> BadParameter {
    BadParameter::Wrong { name: name.to_owned(), wanted: wanted.to_owned() }
}

/// Whether a value counts as absent. Patterns may consist of blanks. For other parameters, models send blank
/// text to mean nothing.
fn is_blank(value: &Value, parameter: Parameter) -> bool {
    match value {
        Value::String(text) if parameter.name == "pattern" => text.is_empty(),
        Value::String(text) => text.trim().is_empty(),
        _ => false,
    }
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

fn one_number(value: &Value) -> Option<u64> {
    match value {
        // A whole number, including the form 3.0.
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(exactly)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Returns the whole number that a float represents. From 2^53 on, floats have gaps, so larger numbers are
/// rejected.
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

/// Returns the most similar known name.
fn nearest(tool: &Tool, name: &str) -> Option<&'static str> {
    let name: String = name.chars().take(SHOWN_CHARS).collect();
    let known = tool.parameters.iter().flat_map(Parameter::names);
    let by_distance = known.map(|known| (strsim::osa_distance(known, &name), known));
    let (distance, known) = by_distance.min_by_key(|(distance, _)| *distance)?;
    (distance <= MAX_DISTANCE && distance < known.chars().count()).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(json: &str, look: impl FnOnce(Parameters<'_>) -> T) -> T {
        let arguments = Arguments::parse("search", json).unwrap();
        look(Parameters::named("search", &arguments).unwrap())
    }

    fn error<T: std::fmt::Debug>(result: Result<T, BadParameter>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn numbers_are_read_from_text_and_brought_into_their_bounds() {
        let limit = |json: &str| with(json, |it| it.whole("limit"));
        let cases = [
            ("{}", 100),
            (r#"{"limit":null}"#, 100),
            (r#"{"limit":""}"#, 100),
            (r#"{"limit":7}"#, 7),
            (r#"{"limit":7.0}"#, 7),
            (r#"{"limit":" 7 "}"#, 7),
            (r#"{"head_limit":8}"#, 8),
            (r#"{"limit":null,"max_results":"9"}"#, 9),
            (r#"{"limit":7,"head_limit":8}"#, 7),
            (r#"{"limit":999999999}"#, 10_000),
        ];
        for (json, expected) in cases {
            assert_eq!(limit(json), Ok(Some(expected)), "{json}");
        }
        for value in ["-1", "1.5", "\"x\"", "\"-1\"", "true", "[1]", "{}", "1e300"] {
            let json = format!(r#"{{"limit":{value}}}"#);
            assert_eq!(error(limit(&json)), "Parameter 'limit' must be a whole number", "{value}");
        }
        let named = error(limit(r#"{"head_limit":-1}"#));
        assert_eq!(named, "Parameter 'head_limit' must be a whole number");
        assert_eq!(with(r#"{"context":9000}"#, |it| it.whole("context")), Ok(Some(200)));
        assert_eq!(with("{}", |it| it.whole("before")), Ok(None));
    }

    #[test]
    fn flags_are_read_from_words_and_numbers() {
        let invert = |json: &str| with(json, |it| it.flag("invert"));
        for yes in ["true", "\"true\"", "\"True\"", "1", "\"1\"", "\"yes\"", "\"on\""] {
            assert_eq!(invert(&format!(r#"{{"invert":{yes}}}"#)), Ok(Some(true)), "{yes}");
        }
        for no in ["false", "\"FALSE\"", "0", "\"0\"", "\"no\"", "null", "\"\""] {
            assert_eq!(invert(&format!(r#"{{"invert":{no}}}"#)), Ok(Some(false)), "{no}");
        }
        for value in ["2", "\"maybe\"", "[]", "-1"] {
            let json = format!(r#"{{"invert":{value}}}"#);
            assert_eq!(error(invert(&json)), "Parameter 'invert' must be true or false");
        }
        let hidden = |json: &str| with(json, |it| it.flag_or_auto("hidden"));
        assert_eq!(hidden("{}"), Ok(None));
        assert_eq!(hidden(r#"{"hidden":"auto"}"#), Ok(None));
        assert_eq!(hidden(r#"{"include_hidden":"true"}"#), Ok(Some(true)));
        assert_eq!(
            error(hidden(r#"{"hidden":3}"#)),
            "Parameter 'hidden' must be true, false or auto"
        );
    }

    #[test]
    fn texts_may_be_one_or_many_and_words_are_those_of_the_table() {
        let texts = |json: &str, name: &str| with(json, |it| it.texts(name)).unwrap();
        assert_eq!(texts("{}", "path"), ["."]);
        assert_eq!(texts(r#"{"path":"a"}"#, "path"), ["a"]);
        assert_eq!(texts(r#"{"paths":["a"," ","b"]}"#, "path"), ["a", "b"]);
        assert_eq!(texts(r#"{"pattern":[" ","",404]}"#, "pattern"), [" ", "404"]);
        assert!(texts("{}", "include").is_empty());
        let wrong = with(r#"{"path":[["a"]]}"#, |it| it.texts("path"));
        assert_eq!(error(wrong), "Parameter 'path' must be a text or a list of texts");
        let output =
            |json: &str| with(json, |it| it.choice("output", &[("files_with_matches", "files")]));
        assert_eq!(output("{}"), Ok(Some("content")));
        assert_eq!(output(r#"{"output":"COUNT"}"#), Ok(Some("count")));
        assert_eq!(output(r#"{"output_mode":"files_with_matches"}"#), Ok(Some("files")));
        assert_eq!(
            error(output(r#"{"output":"x"}"#)),
            "Parameter 'output' must be one of content, only_matching, files, files_without, count, count_matches"
        );
        let multiline = |json: &str| with(json, |it| it.choice("multiline", &[]));
        assert_eq!(multiline(r#"{"multiline":true}"#), Ok(Some("on")));
        assert_eq!(multiline(r#"{"multiline":"off"}"#), Ok(Some("off")));
        assert_eq!(multiline("{}"), Ok(Some("auto")));
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest() {
        let unknown = |json: &str| {
            let arguments = Arguments::parse("search", json).unwrap();
            error(Parameters::named("search", &arguments).map(|_| ()))
        };
        assert_eq!(
            unknown(r#"{"patern":"x"}"#),
            "Unknown parameter 'patern', did you mean 'pattern'?"
        );
        assert_eq!(unknown(r#"{"Limit":1}"#), "Unknown parameter 'Limit', did you mean 'limit'?");
        assert_eq!(unknown(r#"{"something_else":1}"#), "Unknown parameter 'something_else'");
        assert_eq!(unknown(&format!(r#"{{"{}":1}}"#, "x".repeat(500))).len(), 60 + 20);
        // The tools of other agents ignore unknown parameters.
        let arguments = Arguments::parse("search_content", r#"{"nothing":1}"#).unwrap();
        assert!(Parameters::named("search_content", &arguments).is_ok());
    }

    #[test]
    fn counts_and_lines_are_checked_whole() {
        let arguments = |json: &str| Arguments::parse("replace", json).unwrap();
        let expected = arguments(r#"{"expect":{"files":"2","lines":null},"line_range":[3,"9"]}"#);
        let it = Parameters::named("replace", &expected).unwrap();
        assert_eq!(it.count("expect", "files"), Ok(Some(2)));
        assert_eq!(it.count("expect", "lines"), Ok(None));
        assert_eq!(it.lines("line_range"), Ok(Some((3, 9))));
        for json in [r#"{"expect":{"file":2}}"#, r#"{"expect":2}"#, r#"{"expect":{"files":-1}}"#] {
            let wrong = arguments(json);
            let it = Parameters::named("replace", &wrong).unwrap();
            assert_eq!(
                error(it.count("expect", "files")),
                "Parameter 'expect' must be an object with some of files, lines, replacements, all whole numbers"
            );
        }
        for json in ["[1]", "[0,3]", "[5,3]", "[1,2,3]", "3", "[1,-2]"] {
            let wrong = arguments(&format!(r#"{{"line_range":{json}}}"#));
            let it = Parameters::named("replace", &wrong).unwrap();
            assert_eq!(
                error(it.lines("line_range")),
                "Parameter 'line_range' must be the first and the last line, such as [10, 20]",
                "{json}"
            );
        }
    }
}
