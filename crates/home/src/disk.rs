//! Free space on the disk of the state directory. Polled by the supervisor.

use std::io;
use std::path::Path;

/// On a small disk, at most one tenth of the disk must be free.
const MAX_PART: u64 = 10;

/// Space on a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Space available to unprivileged users.
    pub free: u64,
    /// Size of the file system.
    pub total: u64,
}

impl DiskRoom {
    /// Inspects the file system of `dir`. Blocks on the disk; on an unreachable network file system, forever.
    ///
    /// # Errors
    /// The error of statvfs(3).
    pub fn of_blocking(dir: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Self { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
    }

    /// Returns the space that must be free, at most `limit` bytes. Less on a small disk, which
    /// could never have `limit` bytes free.
    #[must_use]
    pub fn needed(&self, limit: u64) -> u64 {
        limit.min(self.total / MAX_PART)
    }

    /// Returns true if too little space is free. If it was low at the last check, it stays low until 1.5
    /// times the needed space is free. This hysteresis avoids flapping.
    #[must_use]
    pub fn is_low(&self, limit: u64, was_low: bool) -> bool {
        let needed = self.needed(limit);
        self.free < if was_low { needed.saturating_add(needed / 2) } else { needed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn too_little_room_begins_below_the_limit_and_ends_well_above_it() {
        let room = |free| DiskRoom { free: free * MIB, total: 100_000 * MIB };
        let wanted = 200 * MIB;
        assert!(!room(200).is_low(wanted, false));
        assert!(room(199).is_low(wanted, false));
        assert!(room(299).is_low(wanted, true));
        assert!(!room(300).is_low(wanted, true));
        assert!(!room(0).is_low(0, false) && !room(0).is_low(0, true), "switched off");
    }

    #[test]
    fn of_a_small_disk_a_tenth_is_enough() {
        let room = |free| DiskRoom { free, total: 64 * MIB };
        assert!(!room(7 * MIB).is_low(200 * MIB, false));
        assert!(room(6 * MIB).is_low(200 * MIB, false));
    }

    #[test]
    fn a_real_disk_has_a_size() {
        let room = DiskRoom::of_blocking(&std::env::temp_dir()).unwrap();
        assert!(0 < room.total && room.free <= room.total);
    }
}
