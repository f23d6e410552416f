//! Creates the searchers of a scan, and limits what they keep in memory. Called by `file` and `whole`.

use super::options::ScanOptions;
use crate::request::{Binary, OutputMode};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};

/// Maximum length of a line in bytes. Shorter for patterns that repeat much. The searcher keeps complete lines
/// in memory.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Maximum size of a file in which matches may cross lines, in bytes. Smaller for patterns that repeat much.
/// Such a file is read as a whole.
const MAX_WHOLE_BYTES: usize = 16 * 1024 * 1024;

/// Input of a searcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    File,
    /// Plain bytes, which are checked for NUL bytes when they are read.
    Blocks,
    /// The decoded text of a whole file.
    Text,
}

/// Creates a searcher for one source. The size of its buffer is limited.
pub(super) fn searcher(ask: &ScanOptions, source: Source) -> Searcher {
    let mut builder = SearcherBuilder::new();
    // Never use memory maps: a file that is truncated while it is mapped would kill the process.
    builder
        .line_terminator(ask.matcher.ends.terminator())
        .line_number(matches!(ask.output, OutputMode::Lines | OutputMode::OnlyMatching))
        .invert_match(ask.invert)
        .multi_line(ask.multiline)
        .max_matches(ask.max_per_file)
        .heap_limit(Some(limit(ask)))
        .binary_detection(match ask.binary {
            Binary::Skip if source != Source::Blocks => BinaryDetection::quit(0),
            Binary::Skip | Binary::Text => BinaryDetection::none(),
            Binary::Report => BinaryDetection::convert(0),
        });

    if ask.with_rows && ask.output == OutputMode::Lines {
        builder.before_context(ask.before).after_context(ask.after);
    }

    match &ask.encoding {
        _ if source != Source::File => builder.bom_sniffing(false),
        None => &mut builder,
        Some(None) => builder.bom_sniffing(false),
        Some(encoding) => builder.encoding(encoding.clone()),
    };

    builder.build()
}

/// Maximum size in bytes of what the searcher has in memory.
pub(super) fn limit(ask: &ScanOptions) -> usize {
    (if ask.multiline { MAX_WHOLE_BYTES } else { MAX_LINE_BYTES }).min(ask.piece)
}

pub(super) fn size(bytes: usize) -> String {
    match bytes / 1024 {
        kib if kib < 1024 => format!("{kib} KiB"),
        kib => format!("{} MiB", kib / 1024),
    }
}
