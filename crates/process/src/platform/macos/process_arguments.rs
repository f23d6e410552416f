//! Layout of the arguments and the environment of a process, as macOS shows them (`KERN_PROCARGS2`). Used by
//! `process_list`; the unit tests run on Linux too.

/// Returns the entries of the environment, each followed by a NUL byte. They come after the number of arguments, the path
/// of the program, its padding, and the arguments. `None` if one of these is missing.
pub(crate) fn environment(block: &[u8]) -> Option<&[u8]> {
    let (n_arguments, rest) = block.split_first_chunk()?;
    let n_arguments = usize::try_from(i32::from_ne_bytes(*n_arguments)).ok()?;
    let path_end = rest.iter().position(|byte| *byte == 0)?;
    let rest = rest.get(path_end..)?;
    let padding_end = rest.iter().position(|byte| *byte != 0)?;
    let mut rest = rest.get(padding_end..)?;

    for _ in 0..n_arguments {
        let end = rest.iter().position(|byte| *byte == 0)?;
        rest = rest.get(end.saturating_add(1)..)?;
    }
    // An empty entry ends the environment. Values of the loader follow.
    let end = rest.windows(2).position(|pair| pair == [0, 0]);
    rest.get(..end.map_or(rest.len(), |end| end.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: i32, text: &str) -> Vec<u8> {
        [&n.to_ne_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn the_environment_follows_the_arguments_and_ends_before_the_values_of_the_loader() {
        let text = "/bin/sleep\0\0\0\0sleep\x0060\0A=1\0QUACKD_COMMAND=1:2.7.8.9.\0\0ptr_munge=\0";
        let found = environment(&block(2, text)).map(<[u8]>::to_vec);
        assert_eq!(found.unwrap(), b"A=1\0QUACKD_COMMAND=1:2.7.8.9.\0");
        // An argument that looks like an entry does not count.
        let text = "/bin/sh\0sh\0-c\0QUACKD_COMMAND=1.\0A=1\0";
        assert_eq!(environment(&block(3, text)).unwrap(), b"A=1\0");
    }

    #[test]
    fn a_block_that_breaks_off_shows_nothing() {
        for (n, text) in [
            (1, ""),
            (1, "/bin/sh"),
            (1, "/bin/sh\0\0"),
            (9, "/bin/sh\0sh\0A=1\0"),
            (-1, "/a\0b\0"),
        ] {
            assert_eq!(environment(&block(n, text)), None, "{n} {text:?}");
        }
        assert_eq!(environment(b"\x01\0"), None);
        assert_eq!(environment(&block(1, "/bin/sh\0sh\0")), Some(&b""[..]));
    }
}
