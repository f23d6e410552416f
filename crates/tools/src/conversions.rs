//! Conversions of texts and numbers as in JavaScript, for the answers of `web_search`: clients compare them.

use quackd_protocol::white_space::is_space;

/// `Number.parseInt(text, 10)`: the integer at the beginning, `None` for `NaN`.
pub(crate) fn leading_integer(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(is_space);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let n_digits = digits.bytes().take_while(u8::is_ascii_digit).count();
    let value: f64 = digits.get(..n_digits)?.parse().ok()?;
    Some(if text.starts_with('-') { -value } else { value })
}

/// `number.toFixed(3)`, for a finite number. Rust rounds an exact half to even, JavaScript away from zero.
pub(crate) fn to_fixed_3(number: f64) -> String {
    let size = number.abs();
    if 1e21 <= size {
        return format!("{number:e}").replace('e', "e+");
    }
    let mut digits = format!("{size:.3}");
    // Exactly half of a thousandth is always an odd multiple of a sixteenth. Its decimals end in 25, which Rust
    // rounds to 2 and JavaScript to 3, or in 75, which both round to 8.
    if size * 16.0 % 2.0 == 1.0 {
        let exact = format!("{size:.4}");
        digits = exact.strip_suffix("25").map_or(digits, |rest| format!("{rest}3"));
    }
    // JavaScript prints zero without a sign, but keeps the sign of a number that is rounded to zero.
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{digits}")
}

/// Returns the first `max_units` UTF-16 units, not cut within a character, if the text is longer.
pub(crate) fn first_units(text: &str, max_units: usize) -> Option<&str> {
    let mut n_units = 0;
    for (at, c) in text.char_indices() {
        n_units += c.len_utf16();
        if max_units < n_units {
            return text.get(..at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leading_integer_counts() {
        let cases = [
            ("3", Some(3.0)),
            ("3abc", Some(3.0)),
            ("3.9", Some(3.0)),
            ("\u{a0}\u{feff} 7", Some(7.0)),
            ("+7", Some(7.0)),
            ("-5", Some(-5.0)),
            ("007", Some(7.0)),
            ("0x5", Some(0.0)),
            ("1e3", Some(1.0)),
            ("99999999999999999999", Some(1e20)),
            ("", None),
            (" ", None),
            ("abc", None),
            ("+-3", None),
            ("- 3", None),
            (".5", None),
            ("٣", None),
        ];
        for (text, expected) in cases {
            assert_eq!(leading_integer(text), expected, "{text:?}");
        }
        assert_eq!(leading_integer(&"9".repeat(10_000)), Some(f64::INFINITY));
    }

    #[test]
    fn three_decimals_are_those_of_to_fixed() {
        let cases = [
            (0.0, "0.000"),
            (-0.0, "0.000"),
            (1.0, "1.000"),
            (0.892, "0.892"),
            (0.8925, "0.892"),
            (1.0005, "1.000"),
            (0.0625, "0.063"),
            (0.1875, "0.188"),
            (0.4375, "0.438"),
            (-0.0625, "-0.063"),
            (2.5, "2.500"),
            (1e-9, "0.000"),
            (-1e-9, "-0.000"),
            (123_456.789_1, "123456.789"),
            (85_318_222.562_5, "85318222.563"),
            (86_973_316_922_285.69, "86973316922285.688"),
            (405_347_432_073_085.06, "405347432073085.063"),
            (1e20, "100000000000000000000.000"),
            (1e21, "1e+21"),
            (-1.5e300, "-1.5e+300"),
        ];
        for (number, expected) in cases {
            assert_eq!(to_fixed_3(number), expected, "{number}");
        }
    }

    #[test]
    fn units_are_counted_and_no_character_is_halved() {
        assert_eq!(first_units("abc", 3), None);
        assert_eq!(first_units("abcd", 3), Some("abc"));
        assert_eq!(first_units("äöü", 2), Some("äö"));
        assert_eq!(first_units("a🦆", 3), None);
        assert_eq!(first_units("ab🦆", 3), Some("ab"));
        assert_eq!(first_units("", 0), None);
    }
}
