//! The program that reads the keychain of macOS. The unit tests of `tools::keychain` use it on Linux too.

use crate::keychain_program::KeychainProgram;

/// `/usr/bin/security` of the system. It prints a line end after the key.
pub(crate) const KEYCHAIN: KeychainProgram = KeychainProgram {
    name: "security",
    reading: |service, account| vec!["find-generic-password", "-s", service, "-a", account, "-w"],
    storing: |service, account| {
        format!("security add-generic-password -s {service} -a {account} -w")
    },
};
