//! Device requests (`ioctl(2)`) of commands that may only read: a list of the allowed ones. A request that is not on
//! the list fails with EROFS. Called by `seccomp`.
//!
//! File systems keep adding requests that change a file, its attributes or its file system, and some need no right
//! to write. So this file lists the requests that read, and no others.

/// Allowed requests as ranges, in ascending order without overlaps. The numbers hold for `x86_64` and `aarch64`.
///
/// Omitted on purpose: requests that insert input into a terminal or change its line discipline (`TIOCSTI`,
/// `TIOCLINUX`, `TIOCSETD`), requests that redirect or set up a console (`TIOCCONS`, `TIOCSSERIAL`), and
/// `FS_IOC_GET_ENCRYPTION_PWSALT`, which writes the salt that it returns.
const ALLOWED: &[(u32, u32)] = &[
    // FIBMAP, FIGETBSZ.
    (0x0000_0001, 0x0000_0002),
    // Block devices: BLKROGET, BLKGETSIZE, BLKRAGET, BLKFRAGET, BLKSECTGET, BLKSSZGET, and BLKIOMIN to BLKROTATIONAL.
    (0x0000_125e, 0x0000_125e),
    (0x0000_1260, 0x0000_1260),
    (0x0000_1263, 0x0000_1263),
    (0x0000_1265, 0x0000_1265),
    (0x0000_1267, 0x0000_1268),
    (0x0000_1278, 0x0000_127c),
    (0x0000_127e, 0x0000_127e),
    // Terminals: TCGETS to TIOCOUTQ, TIOCGWINSZ to FIONREAD, TIOCPKT to TIOCNOTTY, TIOCGETD to TIOCGSID, TIOCGPTPEER.
    (0x0000_5401, 0x0000_5411),
    (0x0000_5413, 0x0000_541b),
    (0x0000_5420, 0x0000_5422),
    (0x0000_5424, 0x0000_5429),
    (0x0000_5441, 0x0000_5441),
    // FIONCLEX, FIOCLEX, FIOASYNC, FIOQSIZE.
    (0x0000_5450, 0x0000_5452),
    (0x0000_5460, 0x0000_5460),
    // Sockets: owner, urgent data and time stamps; then the requests that read an interface's settings.
    (0x0000_8901, 0x0000_8907),
    (0x0000_8910, 0x0000_8910),
    (0x0000_8912, 0x0000_8913),
    (0x0000_8915, 0x0000_8915),
    (0x0000_8917, 0x0000_8917),
    (0x0000_8919, 0x0000_8919),
    (0x0000_891b, 0x0000_891b),
    (0x0000_891d, 0x0000_891d),
    (0x0000_8921, 0x0000_8921),
    (0x0000_8927, 0x0000_8927),
    (0x0000_8933, 0x0000_8933),
    (0x0000_8942, 0x0000_8942),
    (0x0000_894b, 0x0000_894b),
    // NS_GET_USERNS to NS_GET_OWNER_UID; PIDFD_GET_*, which open namespaces of a process.
    (0x0000_b701, 0x0000_b704),
    (0x0000_ff01, 0x0000_ff0a),
    // TIOCSPTLCK, TIOCSIG, FS_IOC_GET_ENCRYPTION_POLICY, TCSETS2 to TCSETSF2.
    (0x4004_5431, 0x4004_5431),
    (0x4004_5436, 0x4004_5436),
    (0x400c_6615, 0x400c_6615),
    (0x402c_542b, 0x402c_542d),
    // RNDGETENTCNT; TIOCGPTN, TIOCGDEV, TIOCGPKT, TIOCGPTLCK, TIOCGEXCL.
    (0x8004_5200, 0x8004_5200),
    (0x8004_5430, 0x8004_5430),
    (0x8004_5432, 0x8004_5432),
    (0x8004_5438, 0x8004_5440),
    // FS_IOC32_GETFLAGS, EXT4_IOC32_GETVERSION, FAT_IOCTL_GET_ATTRIBUTES, FS_IOC32_GETVERSION.
    (0x8004_6601, 0x8004_6601),
    (0x8004_6603, 0x8004_6603),
    (0x8004_7210, 0x8004_7210),
    (0x8004_7601, 0x8004_7601),
    // BLKBSZGET, BLKGETSIZE64; FS_IOC_GETFLAGS, EXT4_IOC_GETVERSION, FS_IOC_GETVERSION; NS_GET_MNTNS_ID.
    (0x8008_1270, 0x8008_1270),
    (0x8008_1272, 0x8008_1272),
    (0x8008_6601, 0x8008_6601),
    (0x8008_6603, 0x8008_6603),
    (0x8008_7601, 0x8008_7601),
    (0x8008_b705, 0x8008_b705),
    // FS_IOC_GET_ENCRYPTION_NONCE, SIOCGSTAMP and SIOCGSTAMPNS with 64-bit times, FS_IOC_GETFSUUID, FS_IOC_FSGETXATTR.
    (0x8010_661b, 0x8010_661b),
    (0x8010_8906, 0x8010_8907),
    (0x8011_1500, 0x8011_1500),
    (0x801c_581f, 0x801c_581f),
    // TCGETS2, FS_IOC_GETFSSYSFSPATH, FS_IOC_GETFSLABEL.
    (0x802c_542a, 0x802c_542a),
    (0x8081_1501, 0x8081_1501),
    (0x8100_9431, 0x8100_9431),
    // FS_IOC_MEASURE_VERITY, FS_IOC_GET_ENCRYPTION_POLICY_EX, FS_IOC_FIEMAP, FS_IOC_READ_VERITY_METADATA,
    // PIDFD_GET_INFO, PROCMAP_QUERY, FS_IOC_GET_ENCRYPTION_KEY_STATUS.
    (0xc004_6686, 0xc004_6686),
    (0xc009_6616, 0xc009_6616),
    (0xc020_660b, 0xc020_660b),
    (0xc028_6687, 0xc028_6687),
    (0xc040_ff0b, 0xc040_ff0b),
    (0xc068_6611, 0xc068_6611),
    (0xc080_661a, 0xc080_661a),
];

/// Returns the ranges of the forbidden requests. A filter can compare with a range, but one rule cannot express "none
/// of these ranges".
pub(crate) fn forbidden() -> Vec<(u32, u32)> {
    let mut gaps = Vec::new();
    let mut next = Some(0);
    for (first, last) in ALLOWED {
        if let (Some(from), Some(to)) = (next, first.checked_sub(1))
            && from <= to
        {
            gaps.push((from, to));
        }
        next = last.checked_add(1);
    }
    gaps.extend(next.map(|from| (from, u32::MAX)));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_either_allowed_or_forbidden() {
        assert!(ALLOWED.iter().all(|(first, last)| first <= last));
        for pair in ALLOWED.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{:#x} and {:#x}", pair[0].1, pair[1].0);
        }
        let count = |ranges: &[(u32, u32)]| {
            ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum::<u64>()
        };
        assert_eq!(count(ALLOWED) + count(&forbidden()), 1 << 32);
    }

    #[test]
    fn what_injects_into_a_terminal_is_forbidden() {
        for request in [0x5412, 0x541c, 0x541d, 0x5423, 0x4008_7602, 0x4010_6614] {
            let holds = |(first, last): &(u32, u32)| *first <= request && request <= *last;
            assert!(forbidden().iter().any(holds), "{request:#x}");
        }
    }
}
