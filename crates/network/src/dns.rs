//! Queries for names (RFC 1035) and their answers.

use std::net::Ipv4Addr;

/// Most bytes of a query.
pub const MAX_QUERY: usize = 1024;

/// Length of the header.
const HEADER: usize = 12;

/// Longest question, in bytes: a name, its type and its class.
const MAX_QUESTION: usize = 255 + 4;

/// Type and class of the addresses of IPv4.
const TYPE_A: [u8; 4] = [0, 1, 0, 1];

/// Lifetime of an answer with an address, in seconds.
const LIFETIME: u32 = 1;

const NO_ERROR: u8 = 0;
const NAME_ERROR: u8 = 3;

/// A query for one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The name in lower case, without the final dot. Invalid UTF-8 is replaced.
    pub name: String,
    id: [u8; 2],
    wants_recursion: u8,
    question: &'a [u8],
}

impl<'a> Query<'a> {
    /// Reads a query. `None` for answers, other operations, other numbers of questions and malformed bytes.
    #[must_use]
    pub fn read(query: &'a [u8]) -> Option<Self> {
        let [id_high, id_low, flags, _, 0, 1, ..] = *query else { return None };
        // Neither an answer nor another operation than a query.
        if flags & 0xf8 != 0 {
            return None;
        }

        let (mut name, mut at) = (Vec::new(), HEADER);
        loop {
            let length = usize::from(*query.get(at)?);
            at += 1;
            match length {
                0 => break,
                1..=63 => name.push(String::from_utf8_lossy(query.get(at..at + length)?)),
                // Above 63, the byte begins a pointer to another name, which a single question does not need.
                _ => return None,
            }
            at += length;
        }

        let question = query.get(HEADER..at + 4)?;
        let name = name.join(".").to_ascii_lowercase();
        let (id, wants_recursion) = ([id_high, id_low], flags & 1);
        let is_short = question.len() <= MAX_QUESTION;
        is_short.then_some(Self { name, id, wants_recursion, question })
    }

    /// Returns true if the query asks for an address of IPv4.
    #[must_use]
    pub fn wants_address(&self) -> bool {
        self.question.ends_with(&TYPE_A)
    }

    /// The answer that the name does not exist.
    #[must_use]
    pub fn no_such_name(&self) -> Vec<u8> {
        self.answer(NAME_ERROR, 0)
    }

    /// The answer that the name exists and has no record of the requested type.
    #[must_use]
    pub fn no_record(&self) -> Vec<u8> {
        self.answer(NO_ERROR, 0)
    }

    /// The answer with this address.
    #[must_use]
    pub fn address(&self, address: Ipv4Addr) -> Vec<u8> {
        let mut answer = self.answer(NO_ERROR, 1);
        // A pointer to the name in the question.
        answer.extend([0xc0, 12]);
        answer.extend(TYPE_A);
        answer.extend(LIFETIME.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(address.octets());
        answer
    }

    fn answer(&self, code: u8, records: u8) -> Vec<u8> {
        let [id_high, id_low] = self.id;
        // An answer, recursion as wanted and available.
        let flags = [0x80 | self.wants_recursion, 0x80 | code];
        let header = [id_high, id_low, flags[0], flags[1], 0, 1, 0, records, 0, 0, 0, 0];
        [&header, self.question].concat()
    }
}

/// Returns true for names of this machine: programs look them up for a greeting, not to leave it. `own` is the machine's
/// name in lower case.
#[must_use]
pub fn is_own(name: &str, own: &str) -> bool {
    name == own
        || name == "localhost"
        || name.ends_with(".localhost")
        || name.ends_with(".127.in-addr.arpa")
        || name == "0.0.0.0.in-addr.arpa"
        || (name.ends_with(".ip6.arpa") && name.trim_start_matches(['0', '1', '.']) == "ip6.arpa")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01";
    const QUESTION: &[u8] = b"\x07Example\x03org\0\0\x01\0\x01";

    #[test]
    fn a_query_gets_its_answer_and_garbage_gets_none() {
        let extra = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
        let query = [HEAD, QUESTION, extra].concat();
        let read = Query::read(&query).unwrap();
        assert_eq!(read.name, "example.org");
        assert!(read.wants_address());
        let header = b"\x12\x34\x81\x83\0\x01\0\0\0\0\0\0";
        assert_eq!(read.no_such_name(), [&header[..], QUESTION].concat());
        let answer = read.address(Ipv4Addr::new(198, 18, 0, 7));
        assert_eq!(answer[..12], *b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0");
        let record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x01\0\x04\xc6\x12\0\x07";
        assert_eq!(answer[12 + QUESTION.len()..], *record);
        assert_eq!(Query::read(&read.no_such_name()), None);
        for end in 0..HEAD.len() + QUESTION.len() {
            assert_eq!(Query::read(&query[..end]), None, "{end}");
        }
        assert_eq!(Query::read(&[HEAD, b"\xc0\x0c\0\x01\0\x01"].concat()), None);
        let long = [HEAD, &b"\x01a".repeat(200), b"\0\0\x01\0\x01"].concat();
        assert_eq!(Query::read(&long), None);
        let six = [HEAD, b"\x01a\0\0\x1c\0\x01"].concat();
        assert!(!Query::read(&six).unwrap().wants_address());
    }

    #[test]
    fn names_of_this_machine_are_told_apart() {
        let loopback = format!("1.{}ip6.arpa", "0.".repeat(31));
        for own in ["box", "localhost", "a.localhost", "1.0.0.127.in-addr.arpa", &loopback] {
            assert!(is_own(own, "box"), "{own}");
        }
        for far in ["example.org", "8.8.8.8.in-addr.arpa", "8.ip6.arpa", "boxes"] {
            assert!(!is_own(far, "box"), "{far}");
        }
    }
}
