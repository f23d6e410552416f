//! Addresses of 198.18.0.0/15 that stand for names, for programs that use no proxy. The range is reserved for tests of
//! networks (RFC 2544), so no host has one.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

/// Most names with an address. The name that was used longest ago loses its address.
const MAX_NAMES: u32 = 4096;

/// Addresses of the range.
const NUMBERS: u32 = 0x2_0000 - 2;

/// The address before the first one.
const BASE: u32 = 0xc612_0000;

/// Names and their addresses.
#[derive(Debug, Default)]
pub struct SyntheticAddresses {
    names: HashMap<String, u32>,
    numbers: HashMap<u32, (String, u64)>,
    /// Numbers by the time of their last use.
    by_use: BTreeMap<u64, u32>,
    uses: u64,
    /// The number before the first one.
    start: u32,
}

impl SyntheticAddresses {
    /// Starts at a place in the range that depends on `seed`. A random one makes it unlikely that a name which a program
    /// remembers from an earlier proxy has another name's address.
    #[must_use]
    pub fn starting_at(seed: u64) -> Self {
        let start = u32::try_from(seed % u64::from(NUMBERS - MAX_NAMES)).unwrap_or_default();
        Self { start, ..Self::default() }
    }

    /// Returns true if the address is in the range.
    #[must_use]
    pub fn is_one(address: Ipv4Addr) -> bool {
        u32::from(address) & 0xfffe_0000 == BASE
    }

    /// The address of a name.
    pub fn of(&mut self, name: &str) -> Ipv4Addr {
        let number = match self.names.get(name) {
            Some(number) => *number,
            None => self.free_number(),
        };
        self.names.insert(name.to_owned(), number);
        self.touch(number, name);
        Ipv4Addr::from(BASE + number)
    }

    /// The name of an address.
    pub fn name(&mut self, address: Ipv4Addr) -> Option<String> {
        let number = u32::from(address).checked_sub(BASE)?;
        let (name, _) = self.numbers.get(&number)?;
        let name = name.clone();
        self.touch(number, &name);
        Some(name)
    }

    fn free_number(&mut self) -> u32 {
        let count = u32::try_from(self.numbers.len()).unwrap_or(MAX_NAMES);
        if count < MAX_NAMES {
            return self.start + count + 1;
        }

        let oldest = self.by_use.pop_first().map_or(1, |(_, number)| number);
        if let Some((name, _)) = self.numbers.remove(&oldest) {
            self.names.remove(&name);
        }
        oldest
    }

    fn touch(&mut self, number: u32, name: &str) {
        self.uses += 1;
        if let Some((_, before)) = self.numbers.insert(number, (name.to_owned(), self.uses)) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.uses, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_start_gives_other_addresses_of_the_range() {
        for seed in [0, 1, 7_000_000, u64::MAX] {
            let mut all = SyntheticAddresses::starting_at(seed);
            for n in 0..5000 {
                let address = all.of(&format!("{n}.example"));
                assert!(SyntheticAddresses::is_one(address), "{address}");
                assert_eq!(all.name(address), Some(format!("{n}.example")));
            }
        }
        assert_ne!(
            SyntheticAddresses::starting_at(9).of("a"),
            SyntheticAddresses::default().of("a")
        );
    }

    #[test]
    fn a_name_keeps_its_address_until_many_others_were_used_later() {
        let mut all = SyntheticAddresses::default();
        let kept = all.of("kept.example");
        assert_eq!(kept, Ipv4Addr::new(198, 18, 0, 1));
        let lost = all.of("lost.example");
        for n in 0..5000 {
            assert!(SyntheticAddresses::is_one(all.of(&format!("{n}.example"))));
            assert_eq!(all.name(kept).as_deref(), Some("kept.example"));
        }
        assert_ne!(all.name(lost).as_deref(), Some("lost.example"));
        assert_eq!(all.numbers.len(), 4096);
        assert_eq!((all.names.len(), all.by_use.len()), (4096, 4096));
        for outside in [[198, 20, 0, 0], [198, 17, 255, 255], [127, 0, 0, 1]] {
            assert!(!SyntheticAddresses::is_one(outside.into()));
            assert_eq!(all.name(outside.into()), None);
        }
    }
}
