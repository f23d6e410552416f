//! Frames and lines: forwarding, protocol violations, and closing by either side.

use super::*;
use quackd_supervision::Budget;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

struct Pair {
    client: WebSocketStream<DuplexStream>,
    share: Arc<Share<CancellationToken>>,
    from_client: BufReader<ReadHalf<DuplexStream>>,
    to_client: WriteHalf<DuplexStream>,
    cancel: CloseTokens,
}

async fn pair() -> Pair {
    pair_of(&Budget::new(usize::MAX)).await
}

async fn pair_of(budget: &Arc<Budget<CancellationToken>>) -> Pair {
    let (near, far) = tokio::io::duplex(1 << 20);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_LINE_BYTES))
        .max_frame_size(Some(MAX_LINE_BYTES));
    let cancel = CloseTokens {
        revoked: CancellationToken::new(),
        epoch: CancellationToken::new(),
        refused: CancellationToken::new(),
    };
    let share = Arc::new(budget.join(cancel.refused.clone()));
    let allowed =
        AllowedBytes { left: AtomicUsize::new(usize::MAX), refused: cancel.refused.clone() };
    let near = counted(near, Arc::clone(&share), Arc::new(allowed));
    let server = WebSocketStream::from_raw_socket(near, Role::Server, Some(config)).await;
    let client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    let (pipe, daemon) = tokio::io::duplex(PIPE_BYTES);
    let (shared, tokens) = (Arc::clone(&share), cancel.clone());
    tokio::spawn(async move { between(server, pipe, &shared, tokens).await });
    let (from_client, to_client) = tokio::io::split(daemon);
    Pair { client, share, from_client: BufReader::new(from_client), to_client, cancel }
}

impl Pair {
    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.from_client.read_line(&mut line).await.unwrap();
        line
    }

    async fn closed_with(&mut self) -> CloseCode {
        loop {
            match self.client.next().await {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code,
                Some(Ok(Message::Ping(_))) => {}
                other => panic!("not closed: {other:?}"),
            }
        }
    }
}

#[test]
fn a_frame_is_one_line_and_means_the_same() {
    assert_eq!(one_line(b"{}"), b"{}\n");
    let pretty = b"{\r\n  \"a\": 1\n}";
    let line = one_line(pretty);
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    let value = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text);
    assert_eq!(value(&line).unwrap(), value(pretty).unwrap());
    for mistake in [&b"{}\n{}"[..], b"{\"a\":\"x\ny\"}", b"{\"a\":\"x\ry\"}"] {
        assert!(value(mistake).is_err());
        assert!(value(&one_line(mistake)).is_err(), "{mistake:?}");
    }
}

#[tokio::test]
async fn frames_become_lines_and_lines_become_frames() {
    let mut pair = pair().await;
    for message in [
        Message::text(" {\"id\":1} \n"),
        Message::text("  "),
        Message::text(""),
        Message::binary(b"{\"id\":2}\xff".to_vec()),
        Message::text("ping"),
    ] {
        pair.client.send(message).await.unwrap();
    }
    assert_eq!(pair.line().await, "{\"id\":1}\n");
    let mut bytes = Vec::new();
    pair.from_client.read_until(b'\n', &mut bytes).await.unwrap();
    assert_eq!(bytes, b"{\"id\":2}\xff\n");
    assert_eq!(pair.client.next().await.unwrap().unwrap(), Message::text("pong"));
    pair.to_client.write_all(b"{\"event\":\"a\"}\n{\"event\":\"b\"}\n").await.unwrap();
    for expected in ["{\"event\":\"a\"}", "{\"event\":\"b\"}"] {
        assert_eq!(pair.client.next().await.unwrap().unwrap(), Message::text(expected));
    }
    // A client that closes ends the stream of lines.
    pair.client.close(None).await.unwrap();
    assert_eq!(pair.line().await, "");
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_connection_with_a_reason() {
    let mut pair = pair().await;
    let large = Message::text("x".repeat(MAX_LINE_BYTES + 1));
    let mut client = pair.client;
    let sending = tokio::spawn(async move {
        // The other side may close during the write.
        client.send(large).await.ok();
        client
    });
    assert_eq!(
        {
            let mut line = String::new();
            pair.from_client.read_line(&mut line).await.unwrap();
            line
        },
        ""
    );
    drop(sending);
}

#[tokio::test]
async fn of_too_many_unfinished_messages_the_one_that_has_most_for_longest_ends() {
    const MIB: usize = 1 << 20;
    let budget = Budget::new(4 * MIB);
    let (mut slow, mut quick) = (pair_of(&budget).await, pair_of(&budget).await);
    let frame = |code, bytes: usize, is_last| {
        let data = vec![b'x'; bytes];
        Message::Frame(tokio_tungstenite::tungstenite::protocol::frame::Frame::message(
            data, code, is_last,
        ))
    };
    let text = OpCode::Data(Data::Text);
    slow.client.send(frame(text, 3 * MIB, false)).await.unwrap();
    while budget.bytes() < 3 * MIB {
        tokio::task::yield_now().await;
    }
    let sending = quick.client.send(frame(text, 2 * MIB, true));
    let (sent, line) = tokio::join!(sending, async {
        let mut line = String::new();
        quick.from_client.read_line(&mut line).await.unwrap();
        line
    });
    sent.unwrap();
    assert_eq!(line.len(), 2 * MIB + 1);
    assert_eq!(slow.closed_with().await, CloseCode::Again);
    // Pings do not add up.
    for _ in 0..1000 {
        quick.client.send(Message::Ping(vec![0; 100].into())).await.unwrap();
        assert!(matches!(quick.client.next().await, Some(Ok(Message::Pong(_)))));
    }
    assert!(quick.share.add(0, Instant::now()).is_empty());
    assert_eq!(budget.bytes(), 0);
}

#[tokio::test]
async fn a_token_that_was_changed_sends_the_client_away() {
    let mut pair = pair().await;
    pair.cancel.revoked.cancel();
    assert_eq!(pair.closed_with().await, CloseCode::Policy);
    assert_eq!(pair.line().await, "");
}

#[tokio::test]
async fn a_door_that_is_closed_sends_the_client_away() {
    let mut pair = pair().await;
    pair.cancel.epoch.cancel();
    assert_eq!(pair.closed_with().await, CloseCode::Away);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_no_ping_is_given_up_and_one_that_does_is_not() {
    let mut pair = pair().await;
    // Reading answers the pings.
    let alive = timeout(REMOTE_SILENCE * 3, async {
        while let Some(Ok(message)) = pair.client.next().await {
            assert!(matches!(message, Message::Ping(_)), "{message:?}");
        }
    });
    assert!(alive.await.is_err(), "closed although it had answered");
    let begun = tokio::time::Instant::now();
    assert_eq!(pair.line().await, "");
    assert!(begun.elapsed() <= REMOTE_SILENCE + CLOSE_TIMEOUT * 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_client_that_reads_nothing_can_still_send() {
    let mut pair = pair().await;
    let flood = tokio::spawn(async move {
        // Far more than all buffers together; it is never read.
        let event = format!("{{\"event\":\"{}\"}}\n", "x".repeat(60_000));
        for _ in 0..200 {
            if pair.to_client.write_all(event.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    for n in 0..100 {
        pair.client.send(Message::text(format!("{n}"))).await.unwrap();
        let mut line = String::new();
        pair.from_client.read_line(&mut line).await.unwrap();
        assert_eq!(line, format!("{n}\n"));
    }
    assert!(!flood.is_finished());
    flood.abort();
}
