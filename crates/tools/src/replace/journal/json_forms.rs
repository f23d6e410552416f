//! Forms of paths, digests and tags in the lines of JSON of `manifest` and `change_log`.

/// Serializes a path as text if it is UTF-8, otherwise as bytes.
pub(super) mod as_path {
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
}

/// Serializes a value by `Display`.
pub(super) mod as_text {
    use quackd_sandbox::StagedTag;
    use quackd_search::replace::Digest;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
    use std::fmt::Display;

    pub(crate) trait FromHex: Sized {
        fn from_hex(text: &str) -> Option<Self>;
    }

    impl FromHex for Digest {
        fn from_hex(text: &str) -> Option<Self> {
            Self::from_hex(text)
        }
    }

    impl FromHex for StagedTag {
        fn from_hex(text: &str) -> Option<Self> {
            Self::from_hex(text)
        }
    }

    pub(crate) fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'a, T: FromHex, D: Deserializer<'a>>(from: D) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        T::from_hex(&text).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

/// Serializes a digest as text, and none as `null`.
pub(super) mod as_optional_text {
    use quackd_search::replace::Digest;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Digest>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(digest) => to.collect_str(digest),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<Digest>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        Digest::from_hex(&text).map(Some).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}
