//! Tests of a terminal without a program.

use super::*;
use quackd_process::open_terminal;
use quackd_protocol::limits::{MAX_TERMINAL_INPUT_PIECES, TERMINAL_CREDITS};

fn terminal() -> Terminal {
    let (master, _slave) = open_terminal(80, 24).unwrap();
    Terminal::new(master, TerminalSetup::default(), PathBuf::from("unused"))
}

#[tokio::test]
async fn tools_leave_room_for_the_input_of_the_supervisor() {
    let terminal = terminal();
    let text = vec![b'x'; MAX_TOOL_PIECES * MAX_PIECE_BYTES];
    assert!(terminal.queue(&text).is_ok());
    assert_eq!(terminal.queue(b"x"), Err(TypeError::Full));
    for _ in 0..MAX_TERMINAL_INPUT_PIECES {
        let bytes = RawValue::from_string("\"aGk=\"".to_owned()).unwrap();
        terminal.handle(ToTerminal::Input { bytes });
    }
    let pieces = std::iter::from_fn(|| terminal.next_piece());
    let of_supervisor = pieces.filter(|piece| piece.source == Source::Supervisor);
    assert!(
        of_supervisor
            .map(|piece| piece.bytes)
            .eq((0..MAX_TERMINAL_INPUT_PIECES).map(|_| b"hi".to_vec()))
    );
    assert!(terminal.queue(b"x").is_ok());
}

#[tokio::test]
async fn viewers_get_the_last_output_of_a_program_that_has_ended() {
    let terminal = terminal();
    terminal.handle(ToTerminal::Watch { raw: true, rows: false, lagging: false });
    for _ in 0..TERMINAL_CREDITS {
        terminal.feed(b"x");
        let output = terminal.next().await;
        assert!(matches!(output, Some(FromTerminal::Output { .. })), "{output:?}");
    }

    terminal.feed(b"last");
    terminal.end(TerminalExit::default());
    terminal.handle(ToTerminal::Refresh { viewer: 1, scrollback: false, as_rows: false });
    terminal.handle(ToTerminal::Taken {});
    let last = terminal.next().await;
    let Some(FromTerminal::Output { bytes }) = last else { panic!("{last:?}") };
    assert_eq!(frames::decoded(&bytes).unwrap(), b"last");
    let screen = terminal.next().await;
    assert!(matches!(screen, Some(FromTerminal::Redraw { viewer: Some(1), .. })), "{screen:?}");
    assert!(matches!(terminal.next().await, Some(FromTerminal::Exited(_))));

    terminal.handle(ToTerminal::Refresh { viewer: 2, scrollback: false, as_rows: false });
    assert!(terminal.next().await.is_none() && terminal.is_over());
}
