//! Differences that are meant, one by one, with the reason. Each is recognised by doing to the other
//! program's question or answer exactly what makes it ours; nothing else passes under its name.

/// A difference that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// `{a,b}` in an ignore file is two alternatives for ripgrep and for us, and plain text for git.
    /// Recognised by writing the alternatives out as rules of their own.
    BracesInIgnoreFiles,
    /// git compares what stands before the first wildcard of a rule by itself and then reads the rest as a
    /// rule of its own, so that `a**/b` becomes `**/b` behind an `a`. Recognised by writing that beginning
    /// as classes of one character, which takes this away.
    BeginningsOfRulesInGit,
    /// A tab at the end of a rule is left out like a blank by us and ripgrep, and part of it for git.
    /// Recognised by leaving it out.
    TabsAtEndsOfRules,
    /// An exclamation mark alone brings everything back for us and ripgrep, and is nothing for git.
    /// Recognised by writing `!*`.
    LoneExclamationMarks,
    /// Three stars are one for us and ripgrep, and two for git. Recognised by writing one.
    StarsInARow,
    /// An escaped slash is a slash for us and ripgrep; for git no rule with it fits. Recognised by
    /// writing a slash.
    EscapedSlashes,
    /// A bracket that begins no class is text for us and ripgrep; for git no rule with it fits.
    /// Recognised by escaping it.
    UnclosedClasses,
    /// More than one of the differences in how rules are read, in one tree. Recognised by all rewritings
    /// together.
    SeveralInIgnoreFiles,
    /// A directory of the tree is searched as a part of the tree, with all rules above it, however the
    /// programs treat a directory that they are given. Recognised by asking for the whole tree and
    /// leaving out the rest.
    RulesOfTheRootBelowAStart,
    /// A directory that is ignored and is asked for is searched without rules, and the answer says so.
    /// ripgrep 13 and 15 differ in this among themselves. Recognised by the note, and by asking without
    /// rules.
    IgnoredStartIsSearched,
    /// A file type that is asked for shows hidden files too in ripgrep; for us it leaves out others and
    /// shows none. Recognised by asking with and without it, and taking what is in both.
    TypesShowHiddenNames,
    /// A glob with a slash that finds nothing at the root is read at any depth, and the answer says so.
    /// Recognised by the note, and by asking with `**/`.
    GlobReadAtAnyDepth,
    /// ripgrep 13 misses some matches of whole words and some empty matches at the end of a file, which
    /// later ones find. Recognised by the version, and by the number of lines, which must be the same.
    PlacesOfMatchesInOldRg,
    /// For ripgrep 13 `--no-ignore-dot` leaves `.rgignore` in force, and a byte order mark is a part of the
    /// first rule. Recognised by the version, and by asking with these files emptied and without the mark.
    IgnoreFilesInOldRg,
    /// ripgrep 13 counts matches across lines that touch each other as one against a limit. Recognised by
    /// the version, and by asking both without the limit.
    LimitsAcrossLinesInOldRg,
    /// Something else that ripgrep 13 did otherwise than later ones. Recognised by the version, and by
    /// the situation, which names it.
    MendedAfterOldRg,
    /// ripgrep does not see an empty match behind the last character of a file without a newline at its
    /// end: it gives the line without a column, and replaces nothing there. Recognised by asking with that
    /// newline, and taking it away again.
    EmptyMatchAtUnterminatedEnd,
    /// Only the matches of lines that have none are nothing, for us and for grep; ripgrep gives the lines.
    /// Recognised by asking it for these.
    MatchesOfLinesWithoutAny,
    /// Where the only match of a line is the empty one behind the last character of a file without a newline
    /// at its end, ripgrep gives the whole line in place of the match, without a column. Recognised by
    /// leaving out what has no column.
    LineInPlaceOfAnEmptyMatch,
    /// ripgrep 15 gives a line of context too many behind the last of a limited number of lines that do
    /// not match. Recognised by asking without limit and context, and doing both by hand.
    ContextOfLimitedLinesWithout,
    /// `[[:alpha:]]` has the letters of all languages for grep, and those of ASCII for the regex crate.
    /// Recognised by asking grep for these.
    ClassesOfGrep,
    /// ripgrep finds empty matches between the bytes of one character too, and a replacement there tears
    /// it apart. Recognised by asking with letters of one byte in the place of the others.
    EmptyMatchInsideACharacter,
}
