//! Tests of the forms through the structs of some tools.

use super::super::{
    BashArguments, EditArguments, FindArguments, JobOutputArguments, ReadFileArguments,
    ReplaceArguments, SearchArguments, WebSearchArguments,
};
use super::*;
use serde_json::{Map, from_str};

fn object(json: &str) -> Map<String, Value> {
    from_str(json).unwrap()
}

fn search(json: &str) -> SearchArguments {
    SearchArguments::of(&object(json))
}

fn error<T: std::fmt::Debug>(checked: Checked<T>) -> String {
    checked.unwrap_err().to_string()
}

#[test]
fn the_first_name_with_something_in_it_wins_and_is_not_trimmed() {
    let cases = [
        (r#"{"cmd":"2","command":"1"}"#, Some("1")),
        (r#"{"command":5,"cmd":"2"}"#, Some("2")),
        (r#"{"command":" \t\n\u00a0\ufeff","cmd":" 2 "}"#, Some(" 2 ")),
        (r#"{"command":null,"cmd":["2"]}"#, None),
        (r#"{"command":""}"#, None),
        (r#"{"c":"3"}"#, None),
        (r#"{"Command":"1"}"#, None),
    ];
    for (json, expected) in cases {
        let BashArguments { command, timeout_ms, background, .. } =
            BashArguments::of(&object(json));
        assert_eq!(command.as_deref(), expected, "{json}");
        assert_eq!((timeout_ms, background), (None, false));
    }
}

#[test]
fn plain_types_ignore_near_misses() {
    let bash = |json| BashArguments::of(&object(json));
    assert_eq!(bash(r#"{"timeout_ms":200}"#).timeout_ms, Some(200));
    // The bounds are those of the schema. The tool has its own.
    assert_eq!(bash(r#"{"timeout_ms":1}"#).timeout_ms, Some(1));
    for json in [r#"{"timeout_ms":"200"}"#, r#"{"timeout_ms":200.0}"#, r#"{"timeout_ms":-1}"#] {
        assert_eq!(bash(json).timeout_ms, None, "{json}");
    }
    assert!(bash(r#"{"background":true}"#).background);
    for json in [r#"{"background":"true"}"#, r#"{"background":1}"#, r#"{"background":false}"#] {
        assert!(!bash(json).background, "{json}");
    }
    let web = |json| WebSearchArguments::of(&object(json));
    assert!(web(r#"{"include_text":1,"includeText":true}"#).include_text);
    let domains = web(r#"{"include_domains":[" "],"domains":[1," a ",""]}"#).include_domains;
    assert_eq!(domains, ["a"]);
    let edit = |json| EditArguments::of(&object(json));
    let (spare, blank) = (edit(r#"{"old_text":"","find":"x"}"#), edit(r#"{"new_text":""}"#));
    assert_eq!(spare.old_text.0.as_deref(), Some("x"));
    assert_eq!((blank.old_text.0, blank.new_text.0.as_deref()), (None, Some("")));
}

#[test]
fn numbers_of_jobs_and_lines_are_read_strictly() {
    let job = |json| JobOutputArguments::of(&object(json));
    assert_eq!(job(r#"{"id":1}"#).job.0.as_deref(), Some("1"));
    assert_eq!(job(r#"{"job":" ","job_id":" job-1 "}"#).job.0.as_deref(), Some("job-1"));
    assert_eq!(job(r#"{"job":[1]}"#).job.0, None);
    assert_eq!(job(r#"{"cursor":" 7 "}"#).cursor, Ok(Digits(Some(7))));
    assert_eq!(job("{}").wait_ms, Ok(Digits(None)));
    for json in [r#"{"cursor":""}"#, r#"{"cursor":1.5}"#, r#"{"cursor":true}"#] {
        assert_eq!(error(job(json).cursor), "Parameter 'cursor' must be a whole number", "{json}");
    }
    let file = |json| ReadFileArguments::of(&object(json));
    assert_eq!(file(r#"{"offset":1,"limit":null}"#).offset, Ok(FromOne(Some(1))));
    assert_eq!(file(r#"{"offset":1,"limit":null}"#).limit, Ok(FromOne(None)));
    for json in [r#"{"limit":0}"#, r#"{"limit":"1"}"#] {
        let expected = "Parameter 'limit' must be a whole number from 1";
        assert_eq!(error(file(json).limit), expected, "{json}");
    }
}

#[test]
fn numbers_are_read_from_text_and_brought_into_their_bounds() {
    let limit = |json: &str| search(json).limit.map(|limit| limit.of(true));
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
        assert_eq!(limit(json), Ok(expected), "{json}");
    }
    for value in ["-1", "1.5", "\"x\"", "\"-1\"", "true", "[1]", "{}", "1e300"] {
        let json = format!(r#"{{"limit":{value}}}"#);
        assert_eq!(error(limit(&json)), "Parameter 'limit' must be a whole number", "{value}");
    }
    let named = error(limit(r#"{"head_limit":-1}"#));
    assert_eq!(named, "Parameter 'head_limit' must be a whole number");
    assert_eq!(search(r#"{"limit":999999999}"#).limit.map(|it| it.of(false)), Ok(999_999_999));
    assert_eq!(search(r#"{"context":9000}"#).context, Ok(200));
    assert_eq!(search("{}").before, Ok(None));
}

#[test]
fn flags_are_read_from_words_and_numbers() {
    let invert = |json: &str| search(json).invert;
    for yes in ["true", "\"true\"", "\"True\"", "1", "\"1\"", "\"yes\"", "\"on\""] {
        assert_eq!(invert(&format!(r#"{{"invert":{yes}}}"#)), Ok(true), "{yes}");
    }
    for no in ["false", "\"FALSE\"", "0", "\"0\"", "\"no\"", "null", "\"\""] {
        assert_eq!(invert(&format!(r#"{{"invert":{no}}}"#)), Ok(false), "{no}");
    }
    for value in ["2", "\"maybe\"", "[]", "-1"] {
        let json = format!(r#"{{"invert":{value}}}"#);
        assert_eq!(error(invert(&json)), "Parameter 'invert' must be true or false");
    }
    let hidden = |json: &str| search(json).files.hidden;
    assert_eq!(hidden("{}"), Ok(None));
    assert_eq!(hidden(r#"{"hidden":"auto"}"#), Ok(None));
    assert_eq!(hidden(r#"{"include_hidden":"true"}"#), Ok(Some(true)));
    assert_eq!(error(hidden(r#"{"hidden":3}"#)), "Parameter 'hidden' must be true, false or auto");
}

#[test]
fn texts_may_be_one_or_many_and_words_are_those_of_the_table() {
    let path = |json: &str| search(json).files.path;
    let texts = |expected: &[&str]| -> Checked<Vec<String>> {
        Ok(expected.iter().map(|text| (*text).to_owned()).collect())
    };
    assert_eq!(path("{}"), texts(&["."]));
    assert_eq!(path(r#"{"path":"a"}"#), texts(&["a"]));
    assert_eq!(path(r#"{"paths":["a"," ","b"]}"#), texts(&["a", "b"]));
    assert_eq!(search(r#"{"pattern":[" ","",404]}"#).what.pattern, texts(&[" ", "404"]));
    assert_eq!(search("{}").files.include, texts(&[]));
    assert_eq!(
        error(path(r#"{"path":[["a"]]}"#)),
        "Parameter 'path' must be a text or a list of texts"
    );
    let output = |json: &str| search(json).output;
    assert_eq!(output("{}"), Ok(None));
    assert_eq!(output(r#"{"output":"COUNT"}"#), Ok(Some("count")));
    assert_eq!(output(r#"{"output_mode":"files_with_matches"}"#), Ok(Some("files")));
    assert_eq!(
        error(output(r#"{"output":"x"}"#)),
        "Parameter 'output' must be one of content, only_matching, files, files_without, count, count_matches"
    );
    let multiline = |json: &str| search(json).what.multiline;
    assert_eq!(multiline(r#"{"multiline":true}"#), Ok("on"));
    assert_eq!(multiline(r#"{"multiline":"off"}"#), Ok("off"));
    assert_eq!(multiline("{}"), Ok("auto"));
}

#[test]
fn a_group_reads_the_parameters_of_each_tool() {
    let json = object(r#"{"include":"a","max_filesize":1,"depth":3}"#);
    let (of_search, of_find) = (SearchArguments::of(&json).files, FindArguments::of(&json).files);
    assert_eq!((of_search.max_filesize, of_find.max_filesize), (Ok(Some(1)), Ok(None)));
    assert_eq!((of_search.max_depth, of_find.max_depth), (Ok(Some(3)), Ok(Some(3))));
    // The default is that of the tool.
    assert_eq!(search("{}").what.dialect, Ok("auto"));
    assert_eq!(ReplaceArguments::of(&object("{}")).plan.what.dialect, Ok("rust"));
}

#[test]
fn counts_and_lines_are_checked_whole() {
    let replace = |json: &str| ReplaceArguments::of(&object(json));
    let it = replace(r#"{"expect":{"files":"2","lines":null},"line_range":[3,"9"]}"#);
    assert_eq!(it.expect, Ok(Counts { files: Some(2), ..Counts::default() }));
    assert_eq!(it.plan.line_range, Ok(Some((3, 9))));
    assert_eq!(it.plan.replacement, Err(BadParameter::Missing("replacement")));
    for json in [r#"{"expect":{"file":2}}"#, r#"{"expect":2}"#, r#"{"expect":{"files":-1}}"#] {
        assert_eq!(
            error(replace(json).expect),
            "Parameter 'expect' must be an object with some of files, lines, replacements, all whole numbers"
        );
    }
    for json in ["[1]", "[0,3]", "[5,3]", "[1,2,3]", "3", "[1,-2]"] {
        let it = replace(&format!(r#"{{"line_range":{json}}}"#));
        assert_eq!(
            error(it.plan.line_range),
            "Parameter 'line_range' must be the first and the last line, such as [10, 20]",
            "{json}"
        );
    }
}
