//! The screen of a terminal, its redraw, the filter for a user's terminal, and the detach key. None panics, a redraw
//! reproduces the text and the cursor, and the filter passes no control character of C1.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_terminal::{DetachKey, Filter, FilterOptions, Screen, TerminalSize};

fuzz_target!(|data: &[u8]| {
    let Some(([cols, rows, new_cols, new_rows], output)) = data.split_first_chunk() else { return };
    let (left, right) = output.split_at(output.len() / 2);

    let mut screen = Screen::new(TerminalSize::new((*cols).into(), (*rows).into()), 1000);
    screen.feed(left);
    screen.resize(TerminalSize::new((*new_cols).into(), (*new_rows).into()));
    screen.feed(right);
    screen.feed(b"\x18");
    let mut again = Screen::new(screen.size(), 1000);
    again.feed(&screen.redraw(1000));
    // The selector of a style of emoji is lost where it follows an empty cell.
    let plain = |screen: &Screen| -> Vec<String> {
        let text = screen.text().replace('\u{fe0f}', "");
        text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
    };
    assert_eq!(plain(&again), plain(&screen));
    assert_eq!(again.cursor(), screen.cursor());

    let mut filter = Filter::new(FilterOptions::default());
    for bytes in [left, right] {
        let text = String::from_utf8(filter.feed(bytes)).expect("valid text");
        assert!(!text.contains(|c: char| (0x7f..0xa0).contains(&u32::from(c))));
    }
    filter.restore();

    let mut key = DetachKey::parse("ctrl-a d").expect("a key");
    for bytes in [left, right] {
        assert!(key.feed(bytes).for_program.len() <= output.len());
    }
    key.timeout();
});
