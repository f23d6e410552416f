//! Writes control sequences from their parts.

/// Appends a sequence with the given parameters. `prefix` is the marker or empty; `suffix` is the intermediate, if any,
/// and the final byte.
pub(crate) fn write(out: &mut Vec<u8>, prefix: &str, numbers: &[u16], suffix: &str) {
    let numbers: Vec<String> = numbers.iter().map(u16::to_string).collect();
    out.extend_from_slice(format!("\x1b[{prefix}{}{suffix}", numbers.join(";")).as_bytes());
}
