//! Frames between worker and supervisor. A parsed frame is written back unchanged, and a stream yields the
//! same frames for every chunk size.

#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use quackd_ipc::frames::{Decoded, codec, decode, encode};
use quackd_protocol::worker::{FROM_WORKER_TAGS, FromWorker, TO_WORKER_TAGS, ToWorker};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::codec::{Decoder as _, Encoder as _};

fn body<T: Serialize + DeserializeOwned>(bytes: &[u8], tags: &[&str]) {
    match decode::<T>(&BytesMut::from(bytes), tags) {
        Ok(Decoded::Known(message)) => {
            let written = encode(&message).expect("a message that came fits into a frame");
            let again = decode::<T>(&BytesMut::from(&*written), tags);
            let Ok(Decoded::Known(again)) = again else { panic!("{written:?} is not read again") };
            assert_eq!(encode(&again).expect("a message that fits"), written);
        }
        Ok(Decoded::Unknown(tag)) => assert!(!tags.contains(&tag.as_str()), "{tag} is known"),
        Err(_) => {}
    }
}

/// Returns the frames of a stream with chunks of this size, and whether it ended with an error.
fn frames(data: &[u8], size: usize) -> (Vec<Bytes>, bool) {
    let (mut codec, mut buffer, mut frames) = (codec(), BytesMut::new(), Vec::new());
    for piece in data.chunks(size.max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            match codec.decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame.freeze()),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((size, data)) = data.split_first() else { return };
    if *size == 0 {
        body::<ToWorker>(data, TO_WORKER_TAGS);
        body::<FromWorker>(data, FROM_WORKER_TAGS);
        return;
    }
    let (found, is_broken) = frames(data, data.len());
    assert_eq!(frames(data, usize::from(*size)), (found.clone(), is_broken));
    let (mut codec, mut written) = (codec(), BytesMut::new());
    for frame in found {
        body::<ToWorker>(&frame, TO_WORKER_TAGS);
        body::<FromWorker>(&frame, FROM_WORKER_TAGS);
        codec.encode(frame, &mut written).expect("a frame that came may be sent");
    }
    assert!(data.starts_with(&written), "frames are not what the stream held");
});
