//! The include glob. It only narrows what the walk has found; nothing is found because of it.

use crate::SearchError;
use globset::{GlobBuilder, GlobMatcher};
use std::path::{Path, PathBuf};

/// A compiled include glob.
#[derive(Debug)]
pub(crate) struct Include {
    matcher: GlobMatcher,
    by_name: bool,
    start: PathBuf,
}

impl Include {
    /// Compiles `glob` for a search that begins at `start`.
    pub(crate) fn new(glob: &str, start: &Path) -> Result<Self, SearchError> {
        let anchored = glob.strip_prefix("./").or_else(|| glob.strip_prefix('/'));
        // A `*` must not cross a slash, or `src/*.rs` would match at every depth.
        let compiled = GlobBuilder::new(anchored.unwrap_or(glob)).literal_separator(true).build();
        let compiled = compiled.map_err(|error| SearchError::BadInclude {
            glob: glob.to_owned(),
            reason: error.kind().to_string(),
        })?;
        Ok(Self {
            matcher: compiled.compile_matcher(),
            by_name: !glob.contains('/'),
            start: start.to_path_buf(),
        })
    }

    /// Says whether the file `relative`, relative to the root, is wanted.
    pub(crate) fn is_match(&self, relative: &Path) -> bool {
        if self.by_name {
            return relative.file_name().is_some_and(|name| self.matcher.is_match(name));
        }
        self.matcher.is_match(relative)
            || relative.strip_prefix(&self.start).is_ok_and(|below| self.matcher.is_match(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_names_or_paths_by_whether_it_has_a_slash() {
        let cases = [
            ("*.ts", "src/deep/a.ts", true),
            ("*.ts", "a.ts", true),
            ("*.ts", "a.tsx", false),
            ("*.{ts,tsx}", "src/a.tsx", true),
            ("*.{ts,{js,jsx}}", "src/a.jsx", true),
            ("[a-c].rs", "src/b.rs", true),
            ("a?.rs", ".ab.rs", false),
            ("*", ".hidden", true),
            ("", "a", false),
            ("A.ts", "a.ts", false),
            ("src/*.ts", "src/a.ts", true),
            ("src/*.ts", "src/deep/a.ts", false),
            ("src/**/*.ts", "src/deep/er/a.ts", true),
            ("src/**", "src/deep/a.ts", true),
            ("**/*.ts", "a.ts", true),
            ("deep/*.ts", "src/deep/a.ts", true),
            ("deep/*.ts", "lib/deep/a.ts", false),
            ("./src/a.ts", "src/a.ts", true),
            ("/src/a.ts", "src/a.ts", true),
            ("/deep/a.ts", "src/deep/a.ts", true),
            ("/a.ts", "src/deep/a.ts", false),
        ];
        for (glob, path, expected) in cases {
            let include = Include::new(glob, Path::new("src")).unwrap();
            assert_eq!(include.is_match(Path::new(path)), expected, "{glob} on {path}");
        }
    }

    #[test]
    fn an_invalid_glob_is_an_error() {
        for glob in ["[a", "{a,b", "a/[z-a]"] {
            let error = Include::new(glob, Path::new("")).unwrap_err();
            assert!(matches!(error, SearchError::BadInclude { .. }), "{glob}: {error}");
        }
    }
}
