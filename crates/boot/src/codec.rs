//! Encoding of messages between Portolan's own processes: one byte of kind,
//! then a body.
//!
//! Greetings and the answers to them are JSON, so that every version can read
//! them. All else is `postcard`: without field names, and for one version only.
//! A length in the bytes reserves no memory beyond what they could hold.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde::{Serialize, Serializer};

/// The kind of messages that every version can read.
pub(crate) const KIND_JSON: u8 = b'J';
/// The kind of messages that only this version can read.
pub(crate) const KIND_PACKED: u8 = b'P';

/// Encodes a message; with `for_all`, so that every version can read it.
pub(crate) fn encode(message: &impl Serialize, for_all: bool) -> Vec<u8> {
    if !for_all {
        return pack(&[KIND_PACKED], message);
    }
    let mut bytes = vec![KIND_JSON];
    serde_json::to_writer(&mut bytes, message).expect("plain data in memory");
    bytes
}

/// Decodes a message of either kind; none if it is malformed.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match bytes.split_first()? {
        (&KIND_JSON, body) => serde_json::from_slice(body).ok(),
        (&KIND_PACKED, body) => unpack(body),
        _ => None,
    }
}

/// Returns `before`, followed by the body of a message.
pub(crate) fn pack(before: &[u8], message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, before.to_vec()).expect("plain data in memory")
}

/// Decodes a body; none if it is malformed or does not take up all of `body`.
pub(crate) fn unpack<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// Serde functions for byte fields, which are copied as a whole.
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
