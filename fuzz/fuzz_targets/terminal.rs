//! The screen of a terminal, its redraw, the filter for a user's terminal, and the detach key. None panics, a redraw
//! reproduces the rows and the cursor, and a second filter changes nothing.

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
    assert_eq!(again.rows(), screen.rows());
    assert_eq!(again.cursor(), screen.cursor());

    // The filter keeps the user's title with sequences that no program may use.
    let passed = |filter: &mut Filter, bytes: &[u8]| {
        let text = String::from_utf8(filter.feed(bytes)).expect("valid text");
        text.replace("\x1b[22;2t", "")
    };
    let mut filter = Filter::new(FilterOptions::default());
    let once = passed(&mut filter, left) + &passed(&mut filter, right);
    assert!(!once.contains(|c: char| (0x7f..0xa0).contains(&u32::from(c))));
    assert_eq!(passed(&mut Filter::new(FilterOptions::default()), once.as_bytes()), once);
    filter.restore();

    let mut key = DetachKey::parse("ctrl-a d").expect("a key");
    for bytes in [left, right] {
        assert!(key.feed(bytes).for_program.len() <= output.len());
    }
    key.timeout();
});
