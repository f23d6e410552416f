//! Arguments of `quack gc`.

use clap::Args;
use std::time::Duration;

/// Delete expired and orphaned files from the state directory
///
/// Never deletes your files or the files of a busy session. The daemon runs the safe part of this every hour. This
/// command runs it now and also deletes quarantined files.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack gc --dry-run                what would go\n  quack gc\n  \
    quack gc --older-than 1d\n  quack gc --histories --yes        conversations of deleted sessions too"
)]
pub(crate) struct GcArgs {
    /// List the files without deleting them
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Minimum age of spill files, undo data and damaged files, such as 12h, 30d or 2w [default: as configured; 30d for
    /// damaged files and histories]
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Option<Duration>,
    /// Delete the histories of deleted sessions too
    #[arg(long)]
    pub(crate) histories: bool,
    /// Delete histories without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Parses a whole number and a unit.
fn age(text: &str) -> Result<Duration, String> {
    const UNITS: [(char, u64); 5] =
        [('s', 1), ('m', 60), ('h', 60 * 60), ('d', 24 * 60 * 60), ('w', 7 * 24 * 60 * 60)];
    let parsed = UNITS.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(*unit)?.parse().ok()?;
        number.checked_mul(*seconds).map(Duration::from_secs)
    });
    parsed.ok_or_else(|| "an age is a whole number and s, m, h, d or w, such as 30d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        for (text, seconds) in
            [("0s", 0), ("90m", 5400), ("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600)]
        {
            assert_eq!(age(text).unwrap().as_secs(), seconds, "{text}");
        }
        for text in ["", "d", "30", "1.5d", "-1d", "30y", "99999999999999999w"] {
            assert!(age(text).is_err(), "{text}");
        }
    }
}
