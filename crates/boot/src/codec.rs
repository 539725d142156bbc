//! How messages between Portolan's own processes stand in bytes: one byte of kind,
//! then a body.
//!
//! Greetings and the answers to them are JSON, so that every version can read them.
//! All else is in the format of `postcard`, without names and of one version only.
//! A length that the bytes state reserves no memory beyond what they could hold.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde::{Serialize, Serializer};

/// The kind of messages that every version can read.
pub(crate) const KIND_JSON: u8 = b'J';
/// The kind of those that only this version can.
pub(crate) const KIND_PACKED: u8 = b'P';

/// A message; one that is `for_all` can be read by every version.
pub(crate) fn encode(message: &impl Serialize, for_all: bool) -> Vec<u8> {
    if !for_all {
        return pack(&[KIND_PACKED], message);
    }
    let mut bytes = vec![KIND_JSON];
    serde_json::to_writer(&mut bytes, message).expect("plain data in memory");
    bytes
}

/// Reads a message of either kind.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match bytes.split_first()? {
        (&KIND_JSON, body) => serde_json::from_slice(body).ok(),
        (&KIND_PACKED, body) => unpack(body),
        _ => None,
    }
}

/// The body of a message, behind these bytes.
pub(crate) fn pack(before: &[u8], message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, before.to_vec()).expect("plain data in memory")
}

/// Reads such a body; none: it is something else, or not all of `body`.
pub(crate) fn unpack<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// For fields of bytes, which are copied as a whole.
pub(crate) mod bytes {
    use super::*;

    pub fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes.as_ref())
    }

    pub fn deserialize<'a, D, T>(from: D) -> Result<T, D::Error>
    where
        D: Deserializer<'a>,
        T: TryFrom<&'a [u8]>,
    {
        let bytes = <&[u8]>::deserialize(from)?;
        let length = |_| Error::invalid_length(bytes.len(), &"as many as the field has");
        T::try_from(bytes).map_err(length)
    }
}
