//! The question whether to open an address in the user's browser. Any program of the session can ask, at most ten times a
//! minute. Nothing is opened without the user's key. Without I/O.

use super::cropped::begin_line;
use crate::display::{cut, cut_begin, name};
use quackd_protocol::foreign_text::is_web_address;
use quackd_protocol::terminal::CellSize;
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::time::Instant;
use url::{Host, Url};

/// Time without a key after which a key is an answer. Earlier ones are for the program: the user may be typing and has not
/// read the question.
const QUIET: Duration = Duration::from_secs(1);

/// Most questions in a minute.
const MAX_QUESTIONS: usize = 10;

/// A minute.
const PERIOD: Duration = Duration::from_secs(60);

/// Rows with the question, the host and the keys. In a smaller window nothing is opened.
const HEAD_ROWS: u16 = 3;

/// Parameters with the address at which a program waits for the end of a login.
const CALLBACKS: [&str; 3] = ["redirect_uri", "redirect_url", "callback"];

/// Effect of typed bytes, or of the next step after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The bytes are for the program.
    ForProgram,
    /// The bytes mean nothing.
    Ignored,
    /// The question has another text.
    Changed,
    /// The user agrees: forward this port, and report it to [`Opening::forwarded`].
    Forward(u16),
    /// Start the program with the address, and report it to [`Opening::started`].
    Open { program: &'static str, address: String },
    /// The question is over.
    Over,
}

/// An address that may be opened.
#[derive(Debug)]
struct WebAddress {
    url: Url,
    /// Port of this machine to which the page leads back.
    port: Option<u16>,
}

impl WebAddress {
    /// Returns `None` for anything but an address of the web without user and password. The host of the result is ASCII.
    fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok().filter(|_| is_web_address(text))?;
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || !url.has_host() || !is_web_address(url.as_str()) {
            return None;
        }
        let mut callbacks = url.query_pairs().filter(|(key, _)| CALLBACKS.contains(&&**key));
        let port = callbacks.find_map(|(_, address)| local_port(&address));
        Some(Self { url, port })
    }
}

/// Returns the port of an address of this machine, if it has one.
fn local_port(address: &str) -> Option<u16> {
    let url = Url::parse(address).ok().filter(|url| url.scheme() == "http")?;
    let is_local = match url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address == Ipv4Addr::LOCALHOST,
        Host::Ipv6(_) => false,
    };
    url.port().filter(|port| is_local && *port != 0)
}

#[derive(Debug)]
struct Question {
    address: WebAddress,
    /// Reason why the address was not opened, or why the page may not work.
    problem: Option<String>,
    /// Whether the window shows the end of the host, and all of the keys.
    is_readable: bool,
    /// Whether the port is being forwarded.
    is_waiting: bool,
    /// Keys from this time on are answers.
    armed: Instant,
}

/// The question of one terminal, and the ports that were forwarded for it.
#[derive(Debug)]
pub(super) struct Opening {
    /// Program that opens an address. `None`: there is none here.
    program: Option<&'static str>,
    /// Whether the session is on another machine, whose ports the browser does not reach.
    is_remote: bool,
    question: Option<Question>,
    /// Times of the last questions.
    asked: VecDeque<Instant>,
    ports: Vec<u16>,
}

impl Opening {
    /// Creates it without a question.
    pub(super) fn new(program: Option<&'static str>, is_remote: bool) -> Self {
        Self { program, is_remote, question: None, asked: VecDeque::new(), ports: Vec::new() }
    }

    /// Returns the address of the open question.
    pub(super) fn unanswered(&self) -> Option<&str> {
        self.question.as_ref().map(|question| question.address.url.as_str())
    }

    /// Returns the ports that were forwarded, or are being forwarded.
    pub(super) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Begins the question about an address. Returns false if there is none: the address is not allowed, another question
    /// is open, or there were too many.
    pub(super) fn ask(&mut self, address: &str, now: Instant) -> bool {
        let is_old = |asked: &Instant| PERIOD <= now.saturating_duration_since(*asked);
        while self.asked.front().is_some_and(is_old) {
            self.asked.pop_front();
        }
        if self.question.is_some() || MAX_QUESTIONS <= self.asked.len() {
            return false;
        }
        let Some(mut address) = WebAddress::parse(address) else { return false };

        self.asked.push_back(now);
        let there = if self.is_remote { address.port.take() } else { None };
        let problem =
            there.map(|port| format!("the page leads back to port {port} of the other machine"));
        let (is_readable, is_waiting, armed) = (false, false, now + QUIET);
        self.question = Some(Question { address, problem, is_readable, is_waiting, armed });
        true
    }

    /// Ends the question, if there is one.
    pub(super) fn dismiss(&mut self) {
        self.question = None;
    }

    /// Takes typed bytes.
    pub(super) fn typed(&mut self, bytes: &[u8], now: Instant) -> Answer {
        let Some(question) = self.question.as_mut().filter(|_| !bytes.is_empty()) else {
            return Answer::ForProgram;
        };
        if now < question.armed {
            question.armed = now + QUIET;
            return Answer::ForProgram;
        }

        match bytes {
            _ if question.is_waiting => Answer::Ignored,
            b"o" | b"O" if !question.is_readable => Answer::Ignored,
            b"o" | b"O" => match question.address.port {
                Some(port) if self.program.is_some() && !self.ports.contains(&port) => {
                    question.is_waiting = true;
                    self.ports.push(port);
                    Answer::Forward(port)
                }
                _ => self.open(),
            },
            b"n" | b"N" | b"q" | b"\x1b" | b"\x03" => {
                self.dismiss();
                Answer::Over
            }
            _ => Answer::Ignored,
        }
    }

    /// Takes the result of a forward, with the text of a refusal.
    pub(super) fn forwarded(&mut self, port: u16, refusal: Option<String>) -> Answer {
        if refusal.is_some() {
            self.ports.retain(|known| *known != port);
        }
        // The question may have been dismissed since, and another one may be open.
        let waits = |it: &&mut Question| it.is_waiting && it.address.port == Some(port);
        let Some(question) = self.question.as_mut().filter(waits) else { return Answer::Ignored };
        question.is_waiting = false;
        if refusal.is_none() {
            return self.open();
        }
        (question.problem, question.address.port) = (refusal, None);
        Answer::Changed
    }

    /// Takes the result of a start of the program.
    pub(super) fn started(&mut self, result: io::Result<()>) -> Answer {
        let Err(error) = result else {
            self.dismiss();
            return Answer::Over;
        };
        if let Some(question) = &mut self.question {
            question.problem = Some(format!("cannot start the browser: {error}"));
        }
        Answer::Changed
    }

    fn open(&self) -> Answer {
        match (self.program, &self.question) {
            (Some(program), Some(question)) => {
                Answer::Open { program, address: question.address.url.to_string() }
            }
            _ => Answer::Ignored,
        }
    }

    /// Returns the sequences that draw the question on a window with any content. Keys that open the address count only
    /// after a drawing that shows its host.
    pub(super) fn drawing(&mut self, window: CellSize, label: &str) -> Vec<u8> {
        let can_open = self.program.is_some();
        let lines = self.question.as_mut().map(|question| question.lines(can_open, window, label));
        let mut lines = lines.into_iter().flatten();

        let mut out = b"\x1b[?25l".to_vec();
        for line in 0..window.rows {
            begin_line(&mut out, line);
            out.extend(lines.next().unwrap_or_default().into_bytes());
        }
        out
    }
}

impl Question {
    /// Returns the lines for a window. The address is below the lines of the client, which it cannot move out of the window.
    fn lines(&mut self, can_open: bool, window: CellSize, label: &str) -> Vec<String> {
        let columns = usize::from(window.cols).max(1);
        let WebAddress { url, port } = &self.address;
        let port = port.map_or_else(String::new, |port| format!(" and forwards port {port}"));
        let keys = if can_open {
            format!("o opens it{port}, n does not")
        } else {
            "cannot open a browser here, n returns".to_owned()
        };

        self.is_readable = keys.len() <= columns && HEAD_ROWS <= window.rows;
        if can_open && !self.is_readable {
            return vec![cut("make the window larger", columns), cut("n returns", columns)];
        }
        let asked = format!("{}: open a page of this host in your browser?", name(label));
        // The end of a host decides to whom it belongs.
        let host = cut_begin(url.host_str().unwrap_or_default(), columns);
        let problem = self.problem.as_deref().unwrap_or_default();
        let [asked, keys, problem] =
            [asked.as_str(), &keys, problem].map(|line| cut(line, columns));
        let address = url.as_str().as_bytes().chunks(columns);
        let address = address.map(|part| String::from_utf8_lossy(part).into_owned());
        [asked, host, keys, problem, String::new()].into_iter().chain(address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_terminal::{Screen, TerminalSize};

    const WINDOW: CellSize = CellSize { cols: 80, rows: 24 };

    fn asked(opening: &mut Opening, address: &str) -> Instant {
        let now = Instant::now();
        assert!(opening.ask(address, now), "{address}");
        opening.drawing(WINDOW, "app/web");
        now + QUIET
    }

    #[test]
    fn only_addresses_of_the_web_without_user_are_asked_about() {
        let longest = format!("http://a/{}", "x".repeat(2048 - 9));
        for address in ["http://a", "https://xn--bcher-kva.example:1/?a=b#c", longest.as_str()] {
            assert!(WebAddress::parse(address).is_some(), "{address}");
        }
        let too_long = format!("{longest}x");
        // It gets longer when it is written in full.
        let grows = format!("http://a/{}", "\"".repeat(1000));
        for address in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "mailto:a@b",
            "http://user@a/",
            "http://user:password@a/",
            "http://:password@a/",
            "http://",
            "http://a b",
            "http://b\u{fc}cher.example",
            "http://a/\u{1b}[2J",
            "http://a/\n",
            "\thttp://a/",
            too_long.as_str(),
            grows.as_str(),
        ] {
            assert!(WebAddress::parse(address).is_none(), "{address:?}");
        }
    }

    #[test]
    fn the_port_is_that_of_a_callback_to_this_machine() {
        for (query, expected) in [
            ("redirect_uri=http%3A%2F%2Flocalhost%3A1455%2Fauth%2Fcallback", Some(1455)),
            ("a=b&redirect_url=http://127.0.0.1:8080", Some(8080)),
            ("callback=http://localhost:9/x", Some(9)),
            ("redirect_uri=https://a.example&callback=http://localhost:9", Some(9)),
            ("redirect_uri=http://localhost/", None),
            ("redirect_uri=http://localhost:0/", None),
            ("redirect_uri=http://localhost:80/", None),
            ("redirect_uri=https://localhost:1455", None),
            ("redirect_uri=http://localhost.example:1455", None),
            ("redirect_uri=http://192.0.2.1:1455", None),
            ("redirect_uri=1455", None),
            ("other=http://localhost:1455", None),
            ("", None),
        ] {
            let address = WebAddress::parse(&format!("https://a.example/?{query}")).unwrap();
            assert_eq!(address.port, expected, "{query}");
        }
    }

    #[test]
    fn keys_answer_only_after_a_pause_and_nothing_opens_by_itself() {
        let mut opening = Opening::new(Some("opener"), false);
        let mut now = Instant::now();
        assert_eq!(opening.typed(b"o", now), Answer::ForProgram);
        assert!(opening.ask("https://a.example", now));
        opening.drawing(WINDOW, "app/web");
        for _ in 0..3 {
            now += QUIET / 2;
            assert_eq!(opening.typed(b"o", now), Answer::ForProgram);
        }
        now += QUIET;
        for other in [&b"x"[..], b"oo", b"o\r", b"\r", b"\x1b[A"] {
            assert_eq!(opening.typed(other, now), Answer::Ignored, "{other:?}");
        }
        assert_eq!(opening.typed(b"", now), Answer::ForProgram);
        let address = "https://a.example/".to_owned();
        assert_eq!(opening.typed(b"o", now), Answer::Open { program: "opener", address });
        assert_eq!(opening.started(Err(io::ErrorKind::NotFound.into())), Answer::Changed);
        assert!(matches!(opening.typed(b"o", now), Answer::Open { .. }));
        assert_eq!(opening.started(Ok(())), Answer::Over);
        assert_eq!(opening.typed(b"o", now), Answer::ForProgram);

        for key in [&b"n"[..], b"\x1b", b"\x03"] {
            let now = asked(&mut opening, "https://a.example");
            assert_eq!(opening.typed(key, now), Answer::Over);
        }
        let mut opening = Opening::new(None, false);
        let now = asked(&mut opening, "https://a.example/?callback=http://localhost:9");
        assert_eq!(opening.typed(b"o", now), Answer::Ignored);
    }

    #[test]
    fn the_port_is_forwarded_first_and_once() {
        const ADDRESS: &str = "https://a.example/?callback=http://localhost:9";
        let mut opening = Opening::new(Some("opener"), false);
        let now = asked(&mut opening, ADDRESS);
        assert_eq!(opening.typed(b"o", now), Answer::Forward(9));
        assert_eq!(opening.typed(b"o", now), Answer::Ignored);
        assert_eq!(opening.forwarded(9, Some("in use".to_owned())), Answer::Changed);
        assert!(opening.ports().is_empty(), "it is not ours to close");
        assert!(matches!(opening.typed(b"o", now), Answer::Open { .. }));
        assert_eq!(opening.started(Ok(())), Answer::Over);

        let now = asked(&mut opening, ADDRESS);
        assert_eq!(opening.typed(b"o", now), Answer::Forward(9));
        assert!(matches!(opening.forwarded(9, None), Answer::Open { .. }));
        assert_eq!((opening.started(Ok(())), opening.ports()), (Answer::Over, &[9][..]));
        let now = asked(&mut opening, ADDRESS);
        assert!(matches!(opening.typed(b"o", now), Answer::Open { .. }));

        // The result of an earlier question opens nothing.
        for next in ["https://b.example", ADDRESS, "https://b.example/?callback=http://localhost:8"]
        {
            let mut opening = Opening::new(Some("opener"), false);
            let now = asked(&mut opening, ADDRESS);
            assert_eq!(opening.typed(b"o", now), Answer::Forward(9));
            opening.dismiss();
            asked(&mut opening, next);
            assert_eq!(opening.forwarded(9, None), Answer::Ignored, "{next}");
        }
    }

    #[test]
    fn there_is_one_question_at_a_time_and_ten_in_a_minute() {
        let mut opening = Opening::new(Some("opener"), false);
        let mut now = Instant::now();
        let mut n_asked = 0;
        for _ in 0..1000 {
            assert!(!opening.ask("file:///etc/passwd", now));
            if opening.ask("https://a.example", now) {
                n_asked += 1;
                assert!(!opening.ask("https://b.example", now));
                opening.dismiss();
            }
        }
        assert_eq!(n_asked, MAX_QUESTIONS);
        now += PERIOD;
        assert!(opening.ask("https://a.example", now));
        assert_eq!(opening.asked.len(), 1);
    }

    /// Lines of a window that shows the question.
    fn shown(opening: &mut Opening, cols: u16, rows: u16) -> Vec<String> {
        let mut window = Screen::new(TerminalSize::new(cols, rows), 0);
        window.feed("#".repeat(usize::from(cols) * usize::from(rows)).as_bytes());
        window.feed(&opening.drawing(CellSize { cols, rows }, "app/web"));
        window.text().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_question_has_the_host_the_keys_and_the_whole_address() {
        let mut opening = Opening::new(Some("opener"), false);
        let address = "https://a.example/?callback=http://localhost:9";
        let now = asked(&mut opening, address);
        let question = "app/web: open a page of this host in your browser?";
        let keys = "o opens it and forwards port 9, n does not";
        let lines = shown(&mut opening, 80, 24);
        assert_eq!(lines, [question, "a.example", keys, "", "", address]);
        let narrow = shown(&mut opening, 42, 9);
        assert_eq!(narrow[5..], [&address[..42], &address[42..]]);

        assert_eq!(opening.typed(b"o", now), Answer::Forward(9));
        opening.forwarded(9, Some("Port 9 is in use\x1b[2J".to_owned()));
        let lines = shown(&mut opening, 80, 24);
        assert_eq!(lines[2], "o opens it, n does not");
        assert!(lines[3].starts_with("Port 9 is in use") && !lines[3].contains('\x1b'));
        opening.program = None;
        assert_eq!(shown(&mut opening, 80, 24)[2], "cannot open a browser here, n returns");
    }

    #[test]
    fn nothing_is_opened_while_the_window_does_not_show_the_end_of_the_host() {
        let mut opening = Opening::new(Some("opener"), false);
        let host = format!("login.good.example.{}evil.example", "x.".repeat(40));
        let now = asked(&mut opening, &format!("https://{host}/"));
        for (cols, rows) in [(21, 24), (5, 24), (80, 2)] {
            let lines = shown(&mut opening, cols, rows);
            assert!("make the window larger".starts_with(lines[0].trim_end_matches('…')));
            assert_eq!(opening.typed(b"o", now), Answer::Ignored, "{cols}×{rows}");
        }
        let lines = shown(&mut opening, 22, 3);
        assert_eq!(lines[1], format!("…{}", &host[host.len() - 21..]));
        assert!(matches!(opening.typed(b"o", now), Answer::Open { .. }));
        shown(&mut opening, 80, 2);
        assert_eq!(opening.typed(b"n", now), Answer::Over);
    }

    #[test]
    fn a_port_of_another_machine_is_named_and_not_forwarded() {
        let mut opening = Opening::new(Some("opener"), true);
        let now = asked(&mut opening, "https://a.example/?callback=http://localhost:9");
        let lines = shown(&mut opening, 80, 24);
        assert_eq!(lines[2], "o opens it, n does not");
        assert_eq!(lines[3], "the page leads back to port 9 of the other machine");
        assert!(matches!(opening.typed(b"o", now), Answer::Open { .. }));
    }
}
