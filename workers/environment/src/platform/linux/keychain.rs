//! The program that reads the keychain of a Linux desktop (Secret Service).

use crate::keychain_program::KeychainProgram;

/// `secret-tool` of libsecret.
pub(crate) const KEYCHAIN: KeychainProgram = KeychainProgram {
    name: "secret-tool",
    reading: |service, account| vec!["lookup", "service", service, "account", account],
    storing: |service, account| {
        format!("secret-tool store --label=quackd service {service} account {account}")
    },
};
