//! Parses the pattern parameters of search and replace.

use quackd_protocol::tools::{BadParameter, CaseArguments, PatternArguments};
use quackd_search::{Boundary, Case, Dialect, Multiline, Pattern};

/// Returns the pattern of a call.
///
/// If two parameters have the same meaning (`mode` and `literal`, `case` and `ignore_case`), both apply where
/// possible. If they contradict each other, the first one applies.
pub(crate) fn pattern(params: PatternArguments) -> Result<Pattern, BadParameter> {
    let patterns = params.pattern?;
    if patterns.is_empty() {
        return Err(BadParameter::Missing("pattern"));
    }
    let mode = params.mode?;
    let boundary = if mode == Some("line") || params.whole_line? {
        Boundary::Line
    } else if mode == Some("word") || params.word? {
        Boundary::Word
    } else {
        Boundary::None
    };

    let dialect = params.dialect?;
    Ok(Pattern {
        patterns,
        literal: mode == Some("literal") || params.literal?,
        boundary,
        dialect: if dialect == "bre" { Dialect::Basic } else { Dialect::Rust },
        retry_as_basic: dialect == "auto",
        case: case(params.letters)?,
        multiline: multiline(params.dotall?, params.multiline?),
    })
}

/// Returns the case sensitivity.
pub(crate) fn case(params: CaseArguments) -> Result<Case, BadParameter> {
    if let Some(word) = params.case? {
        return Ok(match word {
            "insensitive" => Case::Insensitive,
            "smart" => Case::Smart,
            _ => Case::Sensitive,
        });
    }

    let sensitive = params.case_sensitive?;
    let insensitive = params.ignore_case?;
    match (insensitive, sensitive) {
        (Some(true), _) | (None, Some(false)) => Ok(Case::Insensitive),
        _ => Ok(Case::Sensitive),
    }
}

fn multiline(dotall: Option<bool>, word: &str) -> Multiline {
    match word {
        "on" => Multiline::On { dot_all: dotall.unwrap_or(true) },
        // A dot that matches line feeds requires matches across lines.
        "auto" if dotall == Some(true) => Multiline::On { dot_all: true },
        "auto" => Multiline::Auto,
        _ => Multiline::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use quackd_protocol::tools::{ReplaceArguments, SearchArguments};

    fn read(tool: &str, json: &str) -> Result<Pattern, String> {
        let arguments = Arguments::parse(tool, json).unwrap();
        let asked = match tool {
            "search" => SearchArguments::of(arguments.object()).what,
            _ => ReplaceArguments::of(arguments.object()).plan.what,
        };
        pattern(asked).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pattern_is_read_with_all_its_switches() {
        let plain = Pattern { retry_as_basic: true, ..Pattern::new("x") };
        let cases = [
            (r#"{"pattern":"x"}"#, plain.clone()),
            (r#""x""#, plain.clone()),
            (r#"{"regex":["x"]}"#, plain.clone()),
            (r#"{"query":"x","mode":"literal"}"#, Pattern { literal: true, ..plain.clone() }),
            (r#"{"pattern":"x","-F":true}"#, Pattern { literal: true, ..plain.clone() }),
            (
                r#"{"pattern":"x","mode":"word"}"#,
                Pattern { boundary: Boundary::Word, ..plain.clone() },
            ),
            (
                r#"{"pattern":"x","-w":"true","fixed_strings":1}"#,
                Pattern { boundary: Boundary::Word, literal: true, ..plain.clone() },
            ),
            (r#"{"pattern":"x","-x":true}"#, Pattern { boundary: Boundary::Line, ..plain.clone() }),
            (
                r#"{"pattern":"x","dialect":"bre"}"#,
                Pattern { dialect: Dialect::Basic, retry_as_basic: false, ..plain.clone() },
            ),
            (
                r#"{"pattern":"x","dialect":"rust"}"#,
                Pattern { retry_as_basic: false, ..plain.clone() },
            ),
            (r#"{"pattern":"x","-i":true}"#, Pattern { case: Case::Insensitive, ..plain.clone() }),
            (
                r#"{"pattern":"x","case_sensitive":"false"}"#,
                Pattern { case: Case::Insensitive, ..plain.clone() },
            ),
            (r#"{"pattern":"x","case_sensitive":true}"#, plain.clone()),
            (
                r#"{"pattern":"x","case":"smart","-i":true}"#,
                Pattern { case: Case::Smart, ..plain.clone() },
            ),
            (
                r#"{"pattern":"x","multiline":true}"#,
                Pattern { multiline: Multiline::On { dot_all: true }, ..plain.clone() },
            ),
            (
                r#"{"pattern":"x","multiline":"on","dotall":false}"#,
                Pattern { multiline: Multiline::On { dot_all: false }, ..plain.clone() },
            ),
            (
                r#"{"pattern":"x","multiline":false}"#,
                Pattern { multiline: Multiline::Off, ..plain },
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(read("search", json), Ok(expected), "{json}");
        }
        let of_replace = read("replace", r#"{"pattern":"x","replacement":""}"#).unwrap();
        assert_eq!((of_replace.multiline, of_replace.retry_as_basic), (Multiline::Auto, false));
    }

    #[test]
    fn nothing_to_look_for_is_refused() {
        for json in [
            "{}",
            r#"{"pattern":""}"#,
            r#"{"pattern":[]}"#,
            r#"{"pattern":[""]}"#,
            r#"{"pattern":null}"#,
        ] {
            assert_eq!(
                read("search", json),
                Err("Missing required parameter 'pattern'".into()),
                "{json}"
            );
        }
        assert_eq!(read("search", r#"{"pattern":" "}"#).unwrap().patterns, [" "]);
    }
}
