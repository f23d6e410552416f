//! A child process that ends with its test.

use std::ops::{Deref, DerefMut};
use std::process::Child;

/// A child that is killed and reaped when it is dropped. It is used like the [`Child`].
#[derive(Debug)]
pub struct KillOnDrop(Child);

impl From<Child> for KillOnDrop {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
