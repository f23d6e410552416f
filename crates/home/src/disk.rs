//! How much room the disk of the state directory has. Asked by the supervisor from time to time.

use std::io;
use std::path::Path;

/// Of a small disk at most one part in so many has to be free.
const MAX_PART: u64 = 10;

/// Room on a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// What an ordinary user may still write.
    pub free: u64,
    /// The whole disk.
    pub total: u64,
}

impl DiskRoom {
    /// Asks the system. Blocks on the disk: on a network's disk for ever, if that is gone.
    ///
    /// # Errors
    /// The system's.
    pub fn of_blocking(dir: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Self { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
    }

    /// What has to be free if `wanted` bytes are asked for: less on a disk that is so small that it would never
    /// have enough.
    #[must_use]
    pub fn needed(&self, wanted: u64) -> u64 {
        wanted.min(self.total / MAX_PART)
    }

    /// Whether there is too little, if that was so at the last look: it ends only with half as much again, so that
    /// it does not come and go.
    #[must_use]
    pub fn is_low(&self, wanted: u64, was_low: bool) -> bool {
        let needed = self.needed(wanted);
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
