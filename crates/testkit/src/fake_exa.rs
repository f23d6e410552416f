//! A fake web search provider. It uses real sockets and real HTTP/1.1, and it is written by hand so
//! that a test can make it fail on purpose.

use crate::http_reply::header;
use crate::wait::PATIENCE;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Time between two pieces of [`Answer::Drips`].
const DRIP: Duration = Duration::from_millis(20);

/// The provider's reaction to one request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Writes these bytes and closes the connection.
    Says(Vec<u8>),
    /// Writes these bytes and waits for the next request on the same connection.
    Keeps(Vec<u8>),
    /// Writes the first bytes, then repeats the others slowly until the client disconnects.
    Drips(Vec<u8>, Vec<u8>),
    /// Writes these bytes and then nothing, until the client disconnects.
    Hangs(Vec<u8>),
    /// Resets the connection without reading the whole request.
    Resets,
}

/// An event that the provider observed.
#[derive(Debug)]
pub enum Seen {
    /// A complete request.
    Request(Request),
    /// Either side closed a connection.
    Ended,
}

/// A request as received.
#[derive(Debug, Clone)]
pub struct Request {
    /// Request line and headers, without the empty line.
    pub head: String,
    /// Content of as many bytes as the header says.
    pub body: String,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the client closes the connection within the head; an error of the connection.
    pub fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let mut request = Self { head: head.trim_end().to_owned(), body: String::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok());
        reader.take(length.unwrap_or(0)).read_to_string(&mut request.body)?;
        Ok(request)
    }

    /// Value of a header that occurs exactly once.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// A provider that runs until it is dropped.
#[derive(Debug)]
pub struct FakeExa {
    address: SocketAddr,
    seen: Receiver<Seen>,
    is_over: Arc<AtomicBool>,
}

impl FakeExa {
    /// Starts a provider that sends these answers in order, and repeats the last one.
    #[track_caller]
    pub fn start(answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (noticed, seen) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let script = Arc::new(Script { answers: answers.to_vec(), n_given: AtomicUsize::new(0) });
        let over = Arc::clone(&is_over);
        std::thread::spawn(move || serve(&listener, &script, &noticed, &over));
        Self { address, seen, is_over }
    }

    /// URL for search requests.
    pub fn endpoint(&self) -> String {
        format!("http://{}/search", self.address)
    }

    /// Waits for the next event at the provider.
    #[track_caller]
    pub fn notices(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).expect("the provider noticed nothing")
    }

    /// Waits for the next request.
    #[track_caller]
    pub fn request(&self) -> Request {
        match self.notices() {
            Seen::Request(request) => request,
            Seen::Ended => panic!("the connection ended instead of a request"),
        }
    }

    /// Waits until a connection has ended without another request.
    #[track_caller]
    pub fn connection_ends(&self) {
        match self.notices() {
            Seen::Ended => {}
            Seen::Request(request) => panic!("a request came: {request:?}"),
        }
    }

    /// Returns true if the provider observed no event since the last check.
    pub fn is_untouched(&self) -> bool {
        self.seen.try_recv().is_err()
    }
}

impl Drop for FakeExa {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

/// An answer with a content length, after which the connection closes.
pub fn answer(status: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// State shared by all connections.
struct Script {
    answers: Vec<Answer>,
    n_given: AtomicUsize,
}

impl Script {
    fn next(&self) -> Option<&Answer> {
        let n = self.n_given.fetch_add(1, Ordering::SeqCst);
        self.answers.get(n).or_else(|| self.answers.last())
    }
}

/// Serves each connection in a separate thread that ends with its client.
fn serve(
    listener: &TcpListener,
    script: &Arc<Script>,
    noticed: &Sender<Seen>,
    is_over: &AtomicBool,
) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let (script, noticed) = (Arc::clone(script), noticed.clone());
        std::thread::spawn(move || {
            // The outcome of a connection does not matter, and a finished test no longer reads
            // events.
            drop(converse(stream, &script, &noticed));
            drop(noticed.send(Seen::Ended));
        });
    }
}

/// Answers requests until the client disconnects, or until the answer closes the connection.
fn converse(mut stream: TcpStream, script: &Script, noticed: &Sender<Seen>) -> io::Result<()> {
    loop {
        stream.set_read_timeout(Some(PATIENCE))?;
        if stream.peek(&mut [0])? == 0 {
            return Ok(());
        }
        let Some(answer) = script.next() else { return Ok(()) };
        if matches!(answer, Answer::Resets) {
            // Closing a connection with unread bytes resets it.
            return Ok(());
        }
        let request = Request::read(&mut stream)?;
        drop(noticed.send(Seen::Request(request)));
        match answer {
            Answer::Says(bytes) => return stream.write_all(bytes),
            Answer::Keeps(bytes) => stream.write_all(bytes)?,
            Answer::Drips(first, then) => {
                stream.write_all(first)?;
                while !has_gone(&mut stream)? {
                    stream.write_all(then)?;
                }
                return Ok(());
            }
            Answer::Hangs(bytes) => {
                stream.write_all(bytes)?;
                while !has_gone(&mut stream)? {}
                return Ok(());
            }
            Answer::Resets => return Ok(()),
        }
    }
}

/// Waits briefly for the client to close its connection.
fn has_gone(stream: &mut TcpStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(DRIP))?;
    match stream.read(&mut [0]) {
        Ok(n_read) => Ok(n_read == 0),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
