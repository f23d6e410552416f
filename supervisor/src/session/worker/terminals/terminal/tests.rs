//! Tests of one terminal: credits, viewers that do not read, sizes and input.

use super::*;
use crate::events::client_registry::{Client, Transport};
use crate::events::viewing::{QUEUE_PARTS, QueueReader, viewer_queue};
use quackd_protocol::limits::TERMINAL_REDRAW_INTERVAL;
use quackd_protocol::terminal::RgbColor;
use std::time::Duration;

const SMALL: CellSize = CellSize { cols: 80, rows: 24 };
const LARGE: CellSize = CellSize { cols: 200, rows: 50 };

/// A terminal with clients, as the actor and the worker use it.
struct World {
    terminal: Terminal,
    now: Instant,
    last: u32,
}

/// A client that is attached.
struct Attached {
    id: ClientId,
    number: u32,
    as_rows: bool,
    reader: QueueReader,
}

fn line(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn input() -> Box<RawValue> {
    RawValue::from_string("\"aGk=\"".to_owned()).unwrap()
}

impl World {
    fn new() -> Self {
        let terminal = Terminal::new("term-1".to_owned(), "vi".to_owned(), SMALL);
        Self { terminal, now: Instant::now(), last: 0 }
    }

    fn new_viewer(&self) -> (NewViewer, QueueReader) {
        let (queue, reader) = viewer_queue();
        let client = Client::new(Transport::Socket, None).unwrap().id.clone();
        let (read_only, as_rows, sets_size) = (false, false, false);
        let (size, colors) = (None, None);
        (NewViewer { client, queue, read_only, as_rows, size, sets_size, colors }, reader)
    }

    fn attach(&mut self, change: impl FnOnce(&mut NewViewer)) -> Attached {
        let (mut viewer, reader) = self.new_viewer();
        change(&mut viewer);
        self.last += 1;
        let (id, as_rows, number) = (viewer.client.clone(), viewer.as_rows, self.last);
        self.terminal.attach(number, viewer, self.now).unwrap();
        Attached { id, number, as_rows, reader }
    }

    /// Attaches a client and gives it its screen.
    fn live(&mut self, change: impl FnOnce(&mut NewViewer)) -> Attached {
        let mut attached = self.attach(change);
        self.answer(&attached);
        assert_eq!(self.read(&mut attached), ["screen"]);
        attached
    }

    fn answer(&mut self, viewer: &Attached) {
        self.terminal.answer(viewer.number, viewer.as_rows, line("screen")).unwrap();
    }

    /// Reads all lines of a client.
    fn read(&mut self, viewer: &mut Attached) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = viewer.reader.take() {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
        self.terminal.queue_changed(viewer.number, self.now);
        lines
    }

    /// Sends a frame with output, if the worker has a credit.
    fn output(&mut self, text: &str) -> bool {
        let is_paid = self.terminal.pay().is_ok();
        if is_paid {
            self.terminal.pass_on(false, &line(text), self.now);
        }
        is_paid
    }

    /// Lets time pass, as the timer of the actor notices it.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.terminal.tick(self.now);
    }

    /// Messages for the worker since the last call, by name.
    fn messages(&mut self) -> Vec<String> {
        let name = |message: &ToTerminal| match message {
            ToTerminal::Input { .. } => "input".to_owned(),
            ToTerminal::Resize(size) => format!("resize {}x{}", size.cols, size.rows),
            ToTerminal::Colors(colors) => format!("background {}", String::from(colors.bg)),
            ToTerminal::Watch { raw, rows, lagging: false } => format!("watch {raw} {rows}"),
            ToTerminal::Watch { raw, rows, lagging: true } => format!("watch {raw} {rows} lagging"),
            ToTerminal::Refresh { viewer, scrollback, as_rows } => {
                format!("refresh {viewer} {scrollback} {as_rows}")
            }
            ToTerminal::Taken {} => "taken".to_owned(),
            ToTerminal::Signal { .. } => "signal".to_owned(),
        };
        self.terminal.messages.drain(..).map(|message| name(&message)).collect()
    }

    /// Credits that the worker has or gets back.
    fn credits(&self) -> u32 {
        self.terminal.credits
    }
}

#[test]
fn a_new_viewer_gets_the_screen_first_and_then_the_output() {
    let mut world = World::new();
    let mut viewer = world.attach(|_| {});
    assert_eq!(world.messages(), ["watch true false", "refresh 1 true false"]);
    assert!(world.output("before"));
    world.answer(&viewer);
    assert!(world.output("after"));
    assert_eq!(world.read(&mut viewer), ["screen", "after"]);
    assert!(world.terminal.answer(viewer.number, false, line("twice")).is_err());
    let rows = world.attach(|new| new.as_rows = true);
    assert!(world.terminal.answer(rows.number, false, line("another kind")).is_err());
    assert_eq!(world.messages(), ["taken", "watch true true", "refresh 2 false true"]);
}

#[test]
fn only_viewers_that_may_type_are_asked_to_open_an_address() {
    let mut world = World::new();
    let mut writer = world.attach(|_| {});
    let mut reader = world.live(|new| new.read_only = true);
    world.terminal.tell_writers(&line("open"));
    world.answer(&writer);
    assert_eq!(
        (world.read(&mut writer), world.read(&mut reader)),
        (vec!["open".to_owned(), "screen".to_owned()], Vec::new())
    );
    (0..1000).for_each(|_| world.terminal.tell_writers(&line("open")));
    assert!(world.read(&mut writer).len() <= QUEUE_PARTS);
}

#[test]
fn the_worker_has_a_limited_number_of_credits_and_gets_each_back_once() {
    let mut world = World::new();
    // Without a viewer, a timer returns them.
    assert_eq!((0..100).filter(|_| world.output("x")).count(), TERMINAL_CREDITS as usize);
    assert!(world.messages().is_empty() && world.terminal.needs_tick());
    world.wait(Duration::ZERO);
    assert_eq!(world.messages(), vec!["taken"; TERMINAL_CREDITS as usize]);
    assert!(!world.terminal.needs_tick());
    assert_eq!(world.credits(), TERMINAL_CREDITS);
}

#[test]
fn a_viewer_that_is_alone_misses_nothing_however_slowly_it_reads() {
    let mut world = World::new();
    let mut viewer = world.live(|_| {});
    let mut expected = Vec::new();
    for round in 0..50 {
        while world.output(&round.to_string()) {
            expected.push(round.to_string());
        }
        // As many as the queue has room for, and no more.
        assert!(expected.len() < 2 * QUEUE_PARTS);
        assert_eq!(world.read(&mut viewer), std::mem::take(&mut expected));
        assert_eq!(world.credits(), TERMINAL_CREDITS);
    }
}

#[test]
fn a_viewer_that_does_not_read_holds_up_others_for_a_second_at_most() {
    let mut world = World::new();
    let mut stuck = world.live(|_| {});
    let mut reads = world.live(|new| new.as_rows = true);
    while world.output("x") {}
    assert_eq!(world.credits(), 0);
    world.messages();
    world.wait(TERMINAL_REDRAW_INTERVAL);
    assert_eq!(world.credits(), TERMINAL_CREDITS);
    assert!(world.messages().contains(&"watch false true lagging".to_owned()));
    world.terminal.pay().unwrap();
    world.terminal.pass_on(true, &line("rows"), world.now);
    assert_eq!(world.read(&mut reads), ["rows"]);

    // It gets the screen as soon as it has read what it has.
    let n = world.read(&mut stuck).len();
    assert!((TERMINAL_CREDITS as usize..=QUEUE_PARTS).contains(&n), "{n}");
    let refreshed = ["watch true true".to_owned(), format!("refresh {} false false", stuck.number)];
    assert!(world.messages().ends_with(&refreshed));
    world.answer(&stuck);
    assert!(world.output("next"));
    assert_eq!(world.read(&mut stuck), ["screen", "next"]);
}

#[test]
fn a_slow_viewer_lags_behind_a_fast_one_and_gets_a_screen_each_second() {
    let mut world = World::new();
    let (mut slow, mut fast) = (world.live(|_| {}), world.live(|_| {}));
    let fill = |world: &mut World, fast: &mut Attached| {
        for _ in 0..3 * QUEUE_PARTS {
            assert!(world.output("x"));
            assert_eq!(world.read(fast), ["x"]);
        }
        world.messages();
    };
    fill(&mut world, &mut fast);
    assert_eq!(world.read(&mut slow).len(), QUEUE_PARTS);
    assert_eq!(world.messages(), [""; 0], "its last screen is too new");
    assert!(world.terminal.needs_tick());
    world.wait(TERMINAL_REDRAW_INTERVAL);
    assert_eq!(world.messages(), ["watch true false", "refresh 1 false false"]);
    world.answer(&slow);
    fill(&mut world, &mut fast);
    world.wait(TERMINAL_REDRAW_INTERVAL);
    assert_eq!(world.messages(), [""; 0], "it has not read");
    assert_eq!(world.read(&mut slow).first().unwrap(), "screen");
    assert_eq!(world.messages(), ["watch true false", "refresh 1 false false"]);
}

#[test]
fn who_leaves_returns_what_it_owed() {
    let mut world = World::new();
    let viewer = world.live(|_| {});
    while world.output("x") {}
    drop(viewer.reader);
    assert!(!world.terminal.queue_changed(viewer.number, world.now));
    assert_eq!((world.credits(), world.terminal.n_viewers()), (TERMINAL_CREDITS, 0));
    assert!(world.messages().contains(&"watch false false".to_owned()));
    let refused = world.terminal.type_in(&viewer.id, input());
    assert_eq!(refused, Err(TerminalRefusal::NotAttached("term-1".to_owned())));
}

#[test]
fn a_client_that_attaches_again_replaces_itself_and_there_are_so_many() {
    let mut world = World::new();
    let first = world.live(|_| {});
    let id = first.id.clone();
    let again = world.attach(|new| new.client = id);
    assert_eq!(world.terminal.n_viewers(), 1);
    assert!(!world.terminal.queue_changed(first.number, world.now), "it is gone");
    world.answer(&again);
    let _others: Vec<_> = (1..MAX_VIEWERS).map(|_| world.live(|_| {})).collect();
    let (viewer, _reader) = world.new_viewer();
    let refused = world.terminal.attach(99, viewer, world.now);
    assert_eq!(refused, Err(TerminalRefusal::TooManyViewers("term-1".to_owned())));
    assert_eq!(world.terminal.detach(Some(&again.id)).len(), 1);
    assert_eq!(world.terminal.detach(None).len(), MAX_VIEWERS - 1);
}

#[test]
fn requests_for_the_screen_are_bounded() {
    let mut world = World::new();
    let (mut slow, mut fast) = (world.live(|_| {}), world.live(|_| {}));
    for _ in 0..2 * QUEUE_PARTS {
        assert!(world.output("x"));
        assert_eq!(world.read(&mut fast), ["x"]);
    }
    let first = world.attach(|_| {});
    for _ in 1..MAX_ASKED {
        world.attach(|new| new.client = first.id.clone());
    }
    let (viewer, _reader) = world.new_viewer();
    let refused = world.terminal.attach(1000, viewer, world.now);
    assert_eq!(refused, Err(TerminalRefusal::Busy("term-1".to_owned())));

    // A viewer that lags asks later.
    let asks = "refresh 1 false false".to_owned();
    assert_eq!(world.read(&mut slow).len(), QUEUE_PARTS);
    world.wait(TERMINAL_REDRAW_INTERVAL);
    assert!(!world.messages().contains(&asks) && world.terminal.needs_tick());
    world.answer(&first);
    world.wait(Duration::ZERO);
    assert!(world.messages().contains(&asks));
}

#[test]
fn a_changed_notice_of_viewers_stays_before_the_requests_for_screens() {
    let mut world = World::new();
    world.attach(|_| {});
    world.attach(|new| new.as_rows = true);
    let asked = ["watch true true", "refresh 1 true false", "refresh 2 false true"];
    assert_eq!(world.messages(), asked);
}

#[test]
fn the_size_is_that_of_the_writer_who_typed_last() {
    let mut world = World::new();
    let desk = world.live(|new| new.size = Some(LARGE));
    assert_eq!(world.terminal.size, LARGE, "nobody has typed yet");
    let mut phone = world.live(|new| new.size = Some(SMALL));
    let watcher =
        world.live(|new| (new.read_only, new.size, new.sets_size) = (true, Some(SMALL), true));
    assert_eq!(world.terminal.size, LARGE);
    world.messages();

    // The size comes before the input.
    let typed = world.terminal.type_in(&phone.id, input()).unwrap();
    assert_eq!(world.messages(), ["resize 80x24", "input"]);
    let resized = typed.resized.unwrap();
    world.terminal.tell_size(resized, &line("size"));
    assert_eq!((resized.size, world.read(&mut phone)), (SMALL, Vec::new()));

    let other = CellSize { cols: 90, rows: 30 };
    assert_eq!(world.terminal.resize(&desk.id, other), Ok(None), "it did not type last");
    assert_eq!(world.terminal.resize(&watcher.id, other), Ok(None));
    assert_eq!(world.terminal.resize(&phone.id, SMALL), Ok(None), "nothing new");
    assert!(world.terminal.resize(&phone.id, LARGE).unwrap().is_some());
    assert!(world.terminal.resize(&phone.id, SMALL).unwrap().is_some());
    assert_eq!(world.messages(), ["resize 80x24"], "the last one counts");

    // The size stays until a client types, or the only one that may type has another size.
    world.terminal.detach(Some(&phone.id));
    assert_eq!(world.terminal.size, SMALL);
    assert!(world.terminal.resize(&desk.id, LARGE).unwrap().is_some());
    world.terminal.detach(Some(&desk.id));
    assert_eq!(world.terminal.size, LARGE);
    world.live(|new| new.size = Some(SMALL));
    assert_eq!(world.terminal.size, SMALL, "nobody else may type");
    world.live(|new| (new.size, new.sets_size) = (Some(other), true));
    assert_eq!(world.terminal.size, other);
    let refused = world.terminal.type_in(&watcher.id, input());
    assert_eq!(refused, Err(TerminalRefusal::ReadOnly("term-1".to_owned())));
}

#[test]
fn the_colors_are_those_of_the_writer_who_attached_or_typed_last() {
    let mut world = World::new();
    let colors = |n: u8| {
        let gray = RgbColor { r: n, g: n, b: n };
        Some(TerminalColors { fg: gray, bg: gray, cursor: gray })
    };
    let backgrounds = |world: &mut World| -> Vec<String> {
        world.messages().into_iter().filter(|it| it.starts_with("background")).collect()
    };
    let dark = world.live(|new| new.colors = colors(0));
    world.live(|new| new.colors = colors(255));
    assert_eq!(backgrounds(&mut world), ["background #ffffff"], "the last one counts");
    world.live(|new| (new.colors, new.read_only) = (colors(1), true));
    let unknown = world.live(|_| {});
    world.terminal.type_in(&unknown.id, input()).unwrap();
    assert_eq!(backgrounds(&mut world), [""; 0]);
    for _ in 0..2 {
        world.terminal.type_in(&dark.id, input()).unwrap();
    }
    assert_eq!(backgrounds(&mut world), ["background #000000"]);
}

#[test]
fn input_is_bounded_and_taken_again_when_the_program_has_read() {
    let mut world = World::new();
    let viewer = world.live(|_| {});
    let mut is_taken = || world.terminal.type_in(&viewer.id, input()).unwrap().is_taken;
    assert_eq!((0..100).filter(|_| is_taken()).count(), MAX_TERMINAL_INPUT_PIECES as usize);
    world.terminal.input_taken().unwrap();
    let mut is_taken = || world.terminal.type_in(&viewer.id, input()).unwrap().is_taken;
    assert_eq!([is_taken(), is_taken()], [true, false]);
    for _ in 0..MAX_TERMINAL_INPUT_PIECES {
        world.terminal.input_taken().unwrap();
    }
    assert!(world.terminal.input_taken().is_err());
    let signals = (0..100).filter(|_| world.terminal.signal(TerminalSignal::Int).is_ok());
    assert_eq!(signals.count(), MAX_SIGNALS);
}
