//! Intended differences, each with its reason. A difference is recognized by changing the other program's input
//! or output in exactly the way that makes it equal to the library's. Any other difference fails the test.

/// An intended difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// `{a,b}` in an ignore file is two alternatives for ripgrep and the library, and plain text for git.
    /// Recognized by writing the alternatives as separate rules.
    BracesInIgnoreFiles,
    /// git compares the text before the first wildcard of a rule separately, and then parses the rest as a
    /// separate rule. So `a**/b` becomes `**/b` after an `a`. Recognized by writing that text as classes of one
    /// character, which disables this.
    BeginningsOfRulesInGit,
    /// A tab at the end of a rule is removed like a blank by the library and ripgrep, and is part of the rule
    /// for git. Recognized by removing it.
    TabsAtEndsOfRules,
    /// A lone exclamation mark includes everything again for the library and ripgrep, and is ignored by git.
    /// Recognized by writing `!*`.
    LoneExclamationMarks,
    /// Three stars are one for the library and ripgrep, and two for git. Recognized by writing one.
    StarsInARow,
    /// An escaped slash is a slash for the library and ripgrep. For git, a rule with it never matches.
    /// Recognized by writing a slash.
    EscapedSlashes,
    /// An unclosed bracket is text for the library and ripgrep. For git, a rule with it never matches.
    /// Recognized by escaping it.
    UnclosedClasses,
    /// Several of the differences in ignore rules, in one tree. Recognized by all rewrites together.
    SeveralInIgnoreFiles,
    /// A directory of the tree is searched as a part of the tree, with all rules above it. Other programs may
    /// treat a directory argument differently. Recognized by searching the whole tree and removing the rest.
    RulesOfTheRootBelowAStart,
    /// A requested directory that is ignored is searched without rules, and a note reports this. ripgrep 13 and
    /// 15 differ from each other here. Recognized by the note, and by searching without rules.
    IgnoredStartIsSearched,
    /// In ripgrep, a requested file type also includes hidden files. In the library it only excludes other
    /// files. Recognized by searching with and without the type, and taking the intersection.
    TypesShowHiddenNames,
    /// A glob with a slash that finds nothing at the root is retried at any depth, and a note reports this.
    /// Recognized by the note, and by searching with `**/`.
    GlobReadAtAnyDepth,
    /// ripgrep 13 misses some matches of whole words and some empty matches at the end of a file, which later
    /// versions find. Recognized by the version, and by an equal number of lines.
    PlacesOfMatchesInOldRg,
    /// In ripgrep 13, `--no-ignore-dot` leaves `.rgignore` in force, and a byte order mark is a part of the
    /// first rule. Recognized by the version, and by searching with these files emptied and without the mark.
    IgnoreFilesInOldRg,
    /// ripgrep 13 counts adjacent matches across lines as one against a limit. Recognized by the version, and
    /// by searching without the limit.
    LimitsAcrossLinesInOldRg,
    /// Another behavior of ripgrep 13 that differs from later versions. Recognized by the version, and by the
    /// situation, which names it.
    MendedAfterOldRg,
    /// ripgrep does not find an empty match after the last character of a file without a final newline: it
    /// returns the line without a column, and replaces nothing there. Recognized by adding that newline for the
    /// search, and removing it again.
    EmptyMatchAtUnterminatedEnd,
    /// The matches of lines without matches are empty for the library and for grep; ripgrep returns the lines.
    /// Recognized by requesting the lines from ripgrep.
    MatchesOfLinesWithoutAny,
    /// The only match of a line may be the empty one after the last character of a file without a final
    /// newline. For it, ripgrep returns the whole line instead of the match, without a column. Recognized by
    /// removing rows without a column.
    LineInPlaceOfAnEmptyMatch,
    /// ripgrep 15 returns one context line too many after the last of a limited number of non-matching lines.
    /// Recognized by searching without limit and context, and applying both in the test.
    ContextOfLimitedLinesWithout,
    /// `[[:alpha:]]` contains the letters of all languages for grep, and the ASCII letters for the regex crate.
    /// Recognized by searching with grep for the ASCII letters.
    ClassesOfGrep,
    /// A carriage return before a line feed is a part of the line for ripgrep and grep, and for the library only if the
    /// pattern names it. Recognized by removing them: then the answers are equal, and the library finds the same.
    CarriageReturnsAtEndsOfLines,
    /// ripgrep also finds empty matches between the bytes of one character, and a replacement there breaks the
    /// character. Recognized by using one-byte letters instead.
    EmptyMatchInsideACharacter,
}
