//! The file of quackd's program, which the far side may ask for.

use crate::error::LinkError;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Words of argument lists that stand for the program's digest (SHA-256, hexadecimal) and size (bytes).
const DIGEST: &str = "{digest}";
const SIZE: &str = "{size}";

/// The open file.
#[derive(Debug)]
pub(crate) struct Program {
    file: File,
    size: u64,
    digest: Option<String>,
}

impl Program {
    /// Opens the file.
    pub(crate) fn open_blocking(path: &Path) -> Result<Self, LinkError> {
        let file = File::open(path).map_err(LinkError::Program)?;
        let size = file.metadata().map_err(LinkError::Program)?.len();
        Ok(Self { file, size, digest: None })
    }

    /// Replaces the words for digest and size in the arguments. Reads the file once, and only if a list needs the digest.
    pub(crate) fn fill_blocking(&mut self, arguments: &mut [String]) -> Result<(), LinkError> {
        for argument in arguments {
            if argument.contains(DIGEST) {
                let digest = self.digest_blocking().map_err(LinkError::Program)?;
                *argument = argument.replace(DIGEST, &digest);
            }
            if argument.contains(SIZE) {
                *argument = argument.replace(SIZE, &self.size.to_string());
            }
        }
        Ok(())
    }

    fn digest_blocking(&mut self) -> io::Result<String> {
        if let Some(digest) = &self.digest {
            return Ok(digest.clone());
        }
        self.file.rewind()?;
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            match self.file.read(&mut chunk)? {
                0 => break,
                n => hasher.update(chunk.get(..n).unwrap_or_default()),
            }
        }
        let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        self.digest = Some(digest.clone());
        Ok(digest)
    }

    /// Writes exactly as many bytes as the size says.
    pub(crate) async fn send(
        &mut self,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), LinkError> {
        self.file.rewind().map_err(LinkError::Program)?;
        let mut left = self.size;
        let mut chunk = vec![0; CHUNK];
        while 0 < left {
            // The file of a program is in the page cache after the digest, so that this does not wait.
            let limit = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let n = self.file.read(chunk.get_mut(..limit).unwrap_or_default());
            let n = n.map_err(LinkError::Program)?;
            if n == 0 {
                return Err(LinkError::Program(io::ErrorKind::UnexpectedEof.into()));
            }
            to.write_all(chunk.get(..n).unwrap_or_default()).await?;
            left = left.saturating_sub(u64::try_from(n).unwrap_or(u64::MAX));
        }
        Ok(to.flush().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_digest_and_size() {
        let dir = quackd_testkit::TestDir::empty();
        dir.write("quack", "abc");
        let mut program = Program::open_blocking(&dir.join("quack")).unwrap();
        let mut arguments = ["x", "d={digest} s={size}", "{size}"].map(str::to_owned);
        program.fill_blocking(&mut arguments).unwrap();
        // printf abc | sha256sum
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(arguments, ["x".to_owned(), format!("d={digest} s=3"), "3".to_owned()]);
        assert!(matches!(Program::open_blocking(&dir.join("no")), Err(LinkError::Program(_))));
    }
}
