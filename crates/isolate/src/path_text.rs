//! Serializes a path as text if it is UTF-8, otherwise as bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => to.serialize_str(text),
        None => Written::Bytes(path.as_os_str().as_bytes().to_vec()).serialize(to),
    }
}

pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<PathBuf, D::Error> {
    Ok(match Written::deserialize(from)? {
        Written::Text(text) => text.into(),
        Written::Bytes(bytes) => OsString::from_vec(bytes).into(),
    })
}
