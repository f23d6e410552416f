//! Parses the file selection parameters that quackd's search tools share.

use crate::caller_dir::CallerDir;
use quackd_protocol::tools::{BadParameter, FileArguments};
use quackd_search::{Hidden, Ignore, Scope, Sort};

/// Returns the scope of a call, and its start paths, which are not resolved yet.
pub(crate) fn scope(
    params: FileArguments,
    directory: &CallerDir,
) -> Result<(Scope, Vec<String>), BadParameter> {
    let types = |named: Vec<String>| named.iter().map(|name| file_type(name).to_owned()).collect();
    let globs = |globs: Vec<String>| globs.iter().map(|glob| directory.glob(glob)).collect();
    let paths = params.path?.iter().map(|path| directory.path(path).into_owned()).collect();

    let scope = Scope {
        starts: Vec::new(),
        include: globs(params.include?),
        exclude: globs(params.exclude?),
        exclude_dirs: params.exclude_dirs?,
        types: types(params.file_type?),
        types_not: types(params.file_type_not?),
        ignore: match params.ignore? {
            Some("none") => Ignore::None,
            Some("git") => Ignore::Git,
            Some(_) => Ignore::All,
            None => match (params.include_gitignored?, params.respect_git_ignore?) {
                (Some(true), _) | (None, Some(false)) => Ignore::None,
                _ => Ignore::All,
            },
        },
        hidden: match params.hidden? {
            Some(true) => Hidden::Show,
            Some(false) => Hidden::Leave,
            None => Hidden::Auto,
        },
        follow: params.follow?,
        max_depth: params.max_depth?,
        max_filesize: params.max_filesize?.filter(|size| *size != 0),
        sort: match params.sort? {
            Some("mtime") => Sort::Modified,
            Some("none") => Sort::None,
            _ => Sort::Path,
        },
        ..Scope::default()
    };
    Ok((scope, paths))
}

/// Returns the engine's name of a file type that other agents call differently. Other names are not changed.
#[must_use]
pub fn file_type(name: &str) -> &str {
    const NAMES: &[(&str, &str)] = &[
        ("python", "py"),
        ("rs", "rust"),
        ("javascript", "js"),
        ("typescript", "ts"),
        ("c-header", "h"),
        ("cpp-header", "h"),
        ("hpp", "h"),
        ("c++", "cpp"),
        ("cs", "csharp"),
        ("golang", "go"),
        ("rb", "ruby"),
        ("kt", "kotlin"),
        ("bash", "sh"),
        ("shell", "sh"),
        ("pl", "perl"),
        ("htm", "html"),
        ("scss", "sass"),
        ("yml", "yaml"),
        ("markdown", "md"),
        ("psql", "sql"),
        ("postgres", "sql"),
    ];

    let name = name.trim();
    let known = NAMES.iter().find(|(other, _)| name.eq_ignore_ascii_case(other));
    known.map_or(name, |(_, ours)| ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::tools::SearchArguments;

    fn read(json: &str) -> (Scope, Vec<String>) {
        let asked = SearchArguments::of(&serde_json::from_str(json).unwrap());
        scope(asked.files, &CallerDir::default()).unwrap()
    }

    #[test]
    fn every_parameter_about_files_reaches_the_scope() {
        let none = Scope { starts: Vec::new(), ..Scope::default() };
        assert_eq!(read("{}"), (none.clone(), vec![".".to_owned()]));
        let json = r#"{"paths":["a","b"],"glob":"*.rs","exclude":["x"],"exclude_dirs":"y","type":["py","javascript"],
            "type_not":"scss","ignore":"git","hidden":true,"follow":"true","depth":3,"max_filesize":"10",
            "sort":"mtime"}"#;
        let expected = Scope {
            include: vec!["*.rs".into()],
            exclude: vec!["x".into()],
            exclude_dirs: vec!["y".into()],
            types: vec!["py".into(), "js".into()],
            types_not: vec!["sass".into()],
            ignore: Ignore::Git,
            hidden: Hidden::Show,
            follow: true,
            max_depth: Some(3),
            max_filesize: Some(10),
            sort: Sort::Modified,
            ..none
        };
        assert_eq!(read(json), (expected, vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn ignoring_has_several_spellings() {
        let cases = [
            ("{}", Ignore::All),
            (r#"{"no_ignore":true}"#, Ignore::None),
            (r#"{"include_gitignored":"false"}"#, Ignore::All),
            (r#"{"respect_git_ignore":false}"#, Ignore::None),
            (r#"{"ignore":"none"}"#, Ignore::None),
            (r#"{"ignore":"all","no_ignore":true}"#, Ignore::All),
            (r#"{"max_filesize":0}"#, Ignore::All),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json).0.ignore, expected, "{json}");
        }
        assert_eq!(read(r#"{"max_filesize":0}"#).0.max_filesize, None);
        assert_eq!(read(r#"{"hidden":false}"#).0.hidden, Hidden::Leave);
    }
}
