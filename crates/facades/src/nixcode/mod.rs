//! search_content, replace_content and search_glob_files, with the names, parameters and texts of Nixcode.
//!
//! The texts are those of Nixcode's documentation. Failures have no `Error: ` prefix. Totals are exact, and
//! files keep every byte that is not replaced.

pub(crate) mod replace_content;
pub(crate) mod search_content;
pub(crate) mod search_glob_files;

use quackd_protocol::tools::BadParameter;
use quackd_protocol::worker::ToolReport;
use quackd_sandbox::Root;
use quackd_search::{
    GlobRule, Hidden, Ignore, Multiline, Pattern, Scope, Search, SearchError, Stop,
};
use quackd_tools::search_common::RootTree;
use quackd_tools::{CallerDir, Output, ReplaceFailure};
use std::time::Instant;

/// Number of results in one answer.
const PAGE: usize = 100;

/// Error answer of the tools.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Failure {
    #[error("Search pattern is empty")]
    EmptyPattern,
    #[error("Invalid regex pattern: {0}")]
    BadPattern(String),
    #[error("Glob pattern is empty")]
    EmptyGlob,
    #[error("Glob pattern must be relative")]
    AbsoluteGlob,
    #[error("Path exceeds base directory")]
    Outside,
    #[error("Invalid glob pattern: {0}")]
    BadGlob(String),
    #[error("Error: {0}")]
    Parameter(#[from] BadParameter),
    #[error("Error: {0}")]
    Other(String),
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::EmptyPattern => Self::EmptyPattern,
            SearchError::BadPattern { full, .. } => Self::BadPattern(full),
            SearchError::BadGlob { reason, .. } => Self::BadGlob(reason),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<ReplaceFailure> for Failure {
    fn from(error: ReplaceFailure) -> Self {
        match error {
            ReplaceFailure::Search(error) => error.into(),
            ReplaceFailure::Other(reason) => Self::Other(reason),
        }
    }
}

impl Failure {
    /// Returns the failure as the complete answer.
    fn output(&self) -> Output {
        error_output(self.to_string())
    }
}

/// Returns the answer for an error. Unlike [`Output::error`], adds no prefix.
fn error_output(text: String) -> Output {
    let report = ToolReport { is_error: true, ..ToolReport::default() };
    Output { report, ..Output::success(text) }
}

/// Files selected by a glob and two switches.
#[derive(Debug)]
struct FileSelection {
    /// As written in the request.
    glob: String,
    directory: CallerDir,
    is_with_ignored: bool,
    is_with_hidden: Option<bool>,
}

impl FileSelection {
    /// Returns the glob relative to the root, and the rest of the scope.
    fn scope(&self) -> Result<(String, Scope), Failure> {
        if self.glob.is_empty() {
            return Err(Failure::EmptyGlob);
        }
        if self.glob.starts_with('/') {
            return Err(Failure::AbsoluteGlob);
        }

        let glob = normalised(&self.directory.anchored(&self.glob)).ok_or(Failure::Outside)?;
        // `.git` is searched only if the glob names it and the switch is set.
        let names_git = glob.split('/').any(|component| component == ".git");
        let is_of_git = self.is_with_ignored && names_git;

        let scope = Scope {
            globs: GlobRule::Anchored,
            ignore: if self.is_with_ignored { Ignore::None } else { Ignore::Git },
            hidden: match self.is_with_hidden {
                Some(true) => Hidden::Show,
                Some(false) if !is_of_git => Hidden::Leave,
                _ => Hidden::Auto,
            },
            vcs_dirs: is_of_git,
            ..Scope::default()
        };
        Ok((glob, scope))
    }
}

/// Returns the glob without `.` and `..`. `None` if it leads out of the workspace.
fn normalised(glob: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in glob.split('/') {
        match part {
            "" | "." => (),
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    // `a/..` is the root, which is not a file.
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Parses the pattern in the syntax of the regex crate. A `\n` in it lets matches cross lines.
fn read_pattern(pattern: &str) -> Pattern {
    Pattern { multiline: Multiline::Auto, ..Pattern::new(pattern) }
}

/// Rejects an invalid pattern before any other check.
fn check_pattern(pattern: &Pattern, root: &Root) -> Result<(), Failure> {
    // With a deadline that has passed and no depth, the search only compiles the pattern.
    let mut request = Search::new(pattern.clone(), Stop::at(Instant::now()));
    request.scope.max_depth = Some(0);
    quackd_search::search(&request, &RootTree(root)).map(|_| ()).map_err(Failure::from)
}

/// Returns the line after the last row with the number of remaining results, if there are any.
fn trailer(n_more: u64, is_exact: bool, what: &str, offset: u64) -> Option<String> {
    if n_more == 0 && is_exact {
        return None;
    }

    let at_least = if is_exact { "" } else { "+" };
    let current = match offset {
        0 => String::new(),
        offset => format!(" (current offset: {offset})"),
    };
    Some(format!(
        "... and {n_more}{at_least} more {what}{current}, reuse tool with offset parameter"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_read_from_the_root_and_do_not_lead_out() {
        let cases = [
            ("src/**/*.rs", Some("src/**/*.rs")),
            ("./a//b/", Some("a/b")),
            ("a/../b", Some("b")),
            ("../a", None),
            ("a/../../b", None),
            ("a/..", None),
            (".", None),
        ];
        for (glob, expected) in cases {
            assert_eq!(normalised(glob).as_deref(), expected, "{glob}");
        }
    }

    #[test]
    fn the_trailer_tells_the_number_and_the_offset() {
        let more = |n, is_exact, offset| trailer(n, is_exact, "matches", offset);
        assert_eq!(more(0, true, 5), None);
        assert_eq!(
            more(7, true, 0).as_deref(),
            Some("... and 7 more matches, reuse tool with offset parameter")
        );
        assert_eq!(
            more(7, false, 100).as_deref(),
            Some("... and 7+ more matches (current offset: 100), reuse tool with offset parameter")
        );
    }

    #[test]
    fn gits_own_directory_is_for_those_who_ask_for_it_twice() {
        let scope = |glob: &str, is_with_ignored, is_with_hidden| {
            let (glob, directory) = (glob.to_owned(), CallerDir::default());
            let files = FileSelection { glob, directory, is_with_ignored, is_with_hidden };
            let (_, scope) = files.scope().unwrap();
            (scope.vcs_dirs, scope.hidden, scope.ignore)
        };
        assert_eq!(scope(".git/config", true, None), (true, Hidden::Auto, Ignore::None));
        assert_eq!(scope(".git/config", true, Some(false)), (true, Hidden::Auto, Ignore::None));
        assert_eq!(scope(".git/config", false, Some(true)), (false, Hidden::Show, Ignore::Git));
        assert_eq!(scope("**/*", true, Some(true)), (false, Hidden::Show, Ignore::None));
        assert_eq!(scope(".github/*", false, None), (false, Hidden::Auto, Ignore::Git));
    }
}
