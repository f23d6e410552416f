//! Arguments of `quack find`.

use super::{ToolCallArgs, by_name};
use clap::{ArgAction, Args, ValueEnum};

/// Find files and directories by name, kind, size and time
///
/// Runs in a session's worker. Skips hidden files and files listed in .gitignore and .ignore. Paths are relative to the
/// current directory.
#[derive(Debug, Args)]
#[command(
    mut_args(by_name),
    after_help = "Examples:\n  quack find '*.rs'\n  quack find 'src/**/mod.rs' -l\n  \
    quack find -t d\n  quack find --size +1M --newer 2d --sort size\n  \
    quack find --fuzzy mnrs\n  quack find '*.log' -0 | xargs -0 wc -l\n\n\
    PATTERN is a glob for the whole name, or for the path if it has a slash. \
    --json prints one line per entry and a final line of type summary.\n\n\
    Exit codes: 0 ok, also if nothing was found, 2 usage, bad pattern, a missing path (the others are \
    searched), or a failure, 3 no daemon, \
    4 busy or deadline (what was found until then is printed)."
)]
pub(crate) struct FindArgs {
    /// Glob [default: everything]
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// Directories [default: the current one]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// List only files (f), directories (d) or symbolic links (l)
    #[arg(short = 't', long = "type", value_name = "KIND")]
    pub(crate) kind: Option<FindKind>,
    /// Match the letters of PATTERN in order, with gaps; best match first
    #[arg(long)]
    pub(crate) fuzzy: bool,
    /// Ignore case
    #[arg(short = 'i', long, overrides_with = "case_sensitive")]
    pub(crate) ignore_case: bool,
    /// Match case (default)
    #[arg(short = 's', long, overrides_with = "ignore_case")]
    pub(crate) case_sensitive: bool,
    /// Skip paths that match this glob; repeatable
    #[arg(short = 'E', long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Include hidden files
    #[arg(short = 'H', long)]
    pub(crate) hidden: bool,
    /// Include files listed in .gitignore and .ignore
    #[arg(short = 'I', long)]
    pub(crate) no_ignore: bool,
    /// Combine --no-ignore and --hidden
    #[arg(short = 'u', long, action = ArgAction::Count)]
    pub(crate) unrestricted: u8,
    /// Follow symbolic links that stay in the workspace
    #[arg(long)]
    pub(crate) follow: bool,
    /// Maximum depth in directories
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,
    /// Size: at least (+), at most (-) or exactly, such as +10k, -1M, 512; repeatable
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size)]
    pub(crate) size: Vec<SizeBound>,
    /// Changed after a time or within a period, such as 2026-03-10, 2h, 3d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) newer: Option<String>,
    /// Changed before a time or longer ago than a period
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) older: Option<String>,
    /// Sort by path, last change, size or match quality
    #[arg(long, value_name = "KEY")]
    pub(crate) sort: Option<FindSort>,
    /// Print mode, size and modification time
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// End each path with NUL instead of a line end
    #[arg(short = '0', long = "print0", conflicts_with_all = ["json", "long"])]
    pub(crate) null: bool,
    /// Maximum number of entries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) call: ToolCallArgs,
}

/// Values of `--type` of `quack find`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindKind {
    #[value(name = "f", aliases = ["file"])]
    File,
    #[value(name = "d", aliases = ["dir", "directory"])]
    Directory,
    #[value(name = "l", aliases = ["link", "symlink"])]
    Symlink,
}

/// Values of `--sort` of `quack find`.
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

/// Parses `+10k`, `-1M` or `512`. The units k, M and G are powers of 1024.
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

/// Parses a date, a date with a time, or an age, and returns RFC 3339 in UTC. Times are local unless they have an
/// offset.
fn moment(text: &str) -> Result<String, String> {
    moment_at(text, &jiff::Zoned::now())
}

fn moment_at(text: &str, now: &jiff::Zoned) -> Result<String, String> {
    use jiff::civil::{Date, DateTime};
    let zone = now.time_zone();
    let local = |time: DateTime| time.to_zoned(zone.clone()).ok().map(|time| time.timestamp());
    let ago = |span: jiff::Span| now.checked_sub(span.abs()).ok().map(|time| time.timestamp());

    let exact = text.parse::<jiff::Timestamp>().ok();
    let time = exact
        .or_else(|| text.parse::<DateTime>().ok().and_then(local))
        .or_else(|| text.parse::<Date>().ok().and_then(|day| local(day.at(0, 0, 0, 0))))
        .or_else(|| text.parse::<jiff::Span>().ok().and_then(ago));
    time.map(|time| time.to_string()).ok_or_else(|| {
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
