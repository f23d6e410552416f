//! The command line of `quack find`.

use super::{CallArgs, by_name};
use clap::{ArgAction, Args, ValueEnum};

/// Finds files and directories by name, kind, size and time, in a session's worker.
///
/// Leaves out what .gitignore and .ignore name, and hidden files. Paths are relative to the current directory.
#[derive(Debug, Args)]
#[command(
    mut_args(by_name),
    after_help = "Examples:\n  quack find '*.rs'\n  quack find 'src/**/mod.rs' -l\n  \
    quack find -t d\n  quack find --size +1M --newer 2d --sort size\n  \
    quack find --fuzzy mnrs\n  quack find '*.log' -0 | xargs -0 wc -l\n\n\
    PATTERN is a glob of the whole name; with a slash it is one of the path. \
    --json prints a line for each entry and a last one of the type summary.\n\n\
    Exit codes: 0 ok, also if nothing was found, 2 usage, bad pattern, a missing path (the others are \
    looked at), or it failed, 3 no daemon, \
    4 busy or deadline (what was found until then is printed)."
)]
pub(crate) struct FindArgs {
    /// Glob; everything if absent
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// Directories; the current one if absent
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Only files (f), directories (d) or symbolic links (l)
    #[arg(short = 't', long = "type", value_name = "KIND")]
    pub(crate) kind: Option<FindKind>,
    /// The letters of PATTERN in this order, with others between them; best first
    #[arg(long)]
    pub(crate) fuzzy: bool,
    /// Ignore case
    #[arg(short = 'i', long, overrides_with = "case_sensitive")]
    pub(crate) ignore_case: bool,
    /// Capital letters matter, as they do if nothing is said
    #[arg(short = 's', long, overrides_with = "ignore_case")]
    pub(crate) case_sensitive: bool,
    /// Leave out what matches this glob; may be given several times
    #[arg(short = 'E', long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Hidden files too
    #[arg(short = 'H', long)]
    pub(crate) hidden: bool,
    /// Files that .gitignore and .ignore name too
    #[arg(short = 'I', long)]
    pub(crate) no_ignore: bool,
    /// As --no-ignore and --hidden
    #[arg(short = 'u', long, action = ArgAction::Count)]
    pub(crate) unrestricted: u8,
    /// Follow symbolic links that stay in the workspace
    #[arg(long)]
    pub(crate) follow: bool,
    /// How many directories deep
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,
    /// At least (+), at most (-) or exactly so large: +10k, -1M, 512; twice for both
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size)]
    pub(crate) size: Vec<SizeBound>,
    /// Changed after a time, or within so much time: 2026-03-10, 2h, 3d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) newer: Option<String>,
    /// Changed before a time, or longer ago than so much time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) older: Option<String>,
    /// By path, last changed first, largest first, or best first
    #[arg(long, value_name = "KEY")]
    pub(crate) sort: Option<FindSort>,
    /// With mode, size and time of change
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// A NUL after each path instead of a line end
    #[arg(short = '0', long = "print0", conflicts_with_all = ["json", "long"])]
    pub(crate) null: bool,
    /// Most entries altogether
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) call: CallArgs,
}

/// The values of `--type` of `quack find`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindKind {
    #[value(name = "f", aliases = ["file"])]
    File,
    #[value(name = "d", aliases = ["dir", "directory"])]
    Directory,
    #[value(name = "l", aliases = ["link", "symlink"])]
    Symlink,
}

/// The values of `--sort` of `quack find`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindSort {
    Path,
    Modified,
    Size,
    Score,
}

/// One `--size`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeBound {
    AtLeast(u64),
    AtMost(u64),
    Exactly(u64),
}

/// `+10k`, `-1M`, `512`: a number, then k, M or G of 1024.
fn size(text: &str) -> Result<SizeBound, String> {
    let (bound, rest): (fn(u64) -> SizeBound, &str) = match text.split_at_checked(1) {
        Some(("+", rest)) => (SizeBound::AtLeast, rest),
        Some(("-", rest)) => (SizeBound::AtMost, rest),
        _ => (SizeBound::Exactly, text),
    };
    let digits = rest.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match rest.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        _ => None,
    };
    let number = digits.parse::<u64>().ok();
    number
        .zip(shift)
        .and_then(|(number, shift)| number.checked_mul(1 << shift))
        .map(bound)
        .ok_or_else(|| "give a size such as +10k, -1M or 512".to_owned())
}

/// A time as RFC 3339 in UTC: a date, a date with a time (local unless it says otherwise), or so long ago.
fn moment(text: &str) -> Result<String, String> {
    moment_at(text, &jiff::Zoned::now())
}

fn moment_at(text: &str, now: &jiff::Zoned) -> Result<String, String> {
    use jiff::civil::{Date, DateTime};
    let zone = now.time_zone();
    let local = |time: DateTime| time.to_zoned(zone.clone()).ok().map(|time| time.timestamp());
    let ago = |span: jiff::Span| now.checked_sub(span.abs()).ok().map(|time| time.timestamp());
    let exact = text.parse::<jiff::Timestamp>().ok();
    let found = exact
        .or_else(|| text.parse::<DateTime>().ok().and_then(local))
        .or_else(|| text.parse::<Date>().ok().and_then(|day| local(day.at(0, 0, 0, 0))))
        .or_else(|| text.parse::<jiff::Span>().ok().and_then(ago));
    found.map(|time| time.to_string()).ok_or_else(|| {
        "give a date such as 2026-03-10, or a time that has passed, such as 2h or 3d".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_sign_a_number_and_a_unit() {
        for (text, bound) in [
            ("+10k", Some(SizeBound::AtLeast(10_240))),
            ("-1M", Some(SizeBound::AtMost(1 << 20))),
            ("512", Some(SizeBound::Exactly(512))),
            ("2GiB", Some(SizeBound::Exactly(2 << 30))),
            ("+", None),
            ("", None),
            ("k", None),
            ("1T", None),
            ("99999999999G", None),
            ("é", None),
        ] {
            assert_eq!(size(text).ok(), bound, "{text}");
        }
    }

    #[test]
    fn a_moment_is_a_date_or_so_long_ago() {
        let now: jiff::Zoned = "2026-03-10T12:00:00+02:00[+02:00]".parse().unwrap();
        for (text, moment) in [
            ("2h", Some("2026-03-10T08:00:00Z")),
            ("3d", Some("2026-03-07T10:00:00Z")),
            ("1 week", Some("2026-03-03T10:00:00Z")),
            ("2026-03-01", Some("2026-02-28T22:00:00Z")),
            ("2026-03-01T10:00", Some("2026-03-01T08:00:00Z")),
            ("2026-03-01T10:00:00Z", Some("2026-03-01T10:00:00Z")),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(moment_at(text, &now).ok().as_deref(), moment, "{text}");
        }
    }
}
