//! TCP ports on which servers of a session listen, for `quack.ps` and `get_state`.

use quackd_protocol::limits::MAX_SERVERS;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

/// Maximum number of bytes that are read of each list of the kernel. Listening sockets come first,
/// about 400 of them fit.
const MAX_LIST: u64 = 64 * 1024;

/// State of a listening socket in the list.
const LISTEN: &str = "0A";

/// Returns the ports in the network namespace of a process, in order, without those of quackd. Empty on systems without
/// `/proc`. For the blocking pool.
pub(crate) fn listening_ports_blocking(pid: u32, own: &[u16]) -> Vec<u16> {
    let read = |list: &str| {
        let mut text = String::new();
        // A line that is cut in the middle is not read.
        let file = File::open(format!("/proc/{pid}/net/{list}"));
        file.and_then(|file| file.take(MAX_LIST).read_to_string(&mut text)).map(|_length| text)
    };

    // The process may have exited.
    let lists = ["tcp", "tcp6"].into_iter().filter_map(|list| read(list).ok());

    let all: BTreeSet<u16> = lists.flat_map(|text| ports(&text)).collect();
    all.into_iter().filter(|port| !own.contains(port)).take(MAX_SERVERS).collect()
}

fn ports(list: &str) -> Vec<u16> {
    // The first field is the number of the line.
    let port = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (_, port) = local.rsplit_once(':')?;
        (state == LISTEN).then(|| u16::from_str_radix(port, 16).ok())?
    };
    list.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::HAS_PROC;

    #[test]
    fn only_listening_sockets_are_read_and_damaged_lines_are_skipped() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            \u{20}  0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 0 0 5 1\n\
            \u{20}  1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0 0\n\
            \u{20}  2: 0100007F:0BB9 0100007F:C350 01 00000000:00000000\n   3: 0100007F:ZZZZ 0:0 0A\n   4: 01";
        assert_eq!(ports(list), [3000, 8080]);
    }

    #[test]
    fn a_listener_of_this_process_is_found_unless_it_is_quackds_own() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, pid) = (listener.local_addr().unwrap().port(), std::process::id());
        let others = listening_ports_blocking(pid, &[port]);
        assert!(others.len() <= MAX_SERVERS && !others.contains(&port));
        let lists = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
        assert_eq!(ports(&lists).contains(&port), HAS_PROC);
        assert_eq!(listening_ports_blocking(u32::MAX, &[]), Vec::<u16>::new());
    }
}
