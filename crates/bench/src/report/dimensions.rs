//! What a figure depends on beside its system: one map, which JSON, table and
//! page read.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// What may be varied, or be worth knowing. The names are those of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Bytes of a message.
    Size,
    /// Packets lost on purpose, percent.
    Loss,
    /// Lengths of the bursts in which they were lost, packets.
    Bursts,
    /// What else was done to packets on purpose, as `lab status` says it.
    Harm,
    /// What else went on at the same time; of a ratio while the dividend was
    /// measured, and the divisor where it is another system's.
    Beside,
    /// Networks that messages went by, where they differ.
    Interface,
    /// How messages followed each other.
    Pattern,
    /// `warm`, `cold` or `fresh`, where it is chosen where messages lie.
    Buffers,
    /// `block` where ranks slept until a message came, `call` where they waited in blocking
    /// calls.
    Wait,
    /// Messages sent before any is read.
    Messages,
    /// Receives or messages that wait at once.
    Entries,
    /// `none`, `masking`, `overlap` or `both`, or `pushed`, `pulled` or `shared`;
    /// of `early-late` `push-zero`, `push-pull` or `push-all`.
    Push,
    /// Bytes that leave with the offer of a longer message: BTP(1).
    First,
    /// Bytes that follow it at once: BTP(2).
    Second,
    /// `early` or `late`.
    Receiver,
    /// What each sender may push before it is asked, bytes; or `default`.
    PushedBuffer,
    /// `sender` or `receiver`: who computes beside its message.
    Computes,
    /// `single`, `serialized` or `multiple`: which threads may call the endpoint.
    Threads,
    /// How many call at once.
    Callers,
    /// Whose messages, in a bench with several pairs: sender and receiver.
    Pair,
    /// Whether there was traffic towards the stalled rank.
    StalledTraffic,
    /// Whether there was a flow that nobody takes from.
    UntakenFlow,
    /// The link.
    Link,
    /// `encrypt` or `none`.
    Security,
    /// `auto`, `lan` or `shared`, or the kernel's of TCP.
    Congestion,
    /// Processes of the job; of ratios in a bench of several numbers.
    Ranks,
}

use Dimension::*;

/// Those that say how matched messages were sent.
const HOW: [Dimension; 7] = [
    Push,
    First,
    Receiver,
    PushedBuffer,
    Computes,
    Threads,
    Callers,
];

/// A point on one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Yes or no.
    Flag(bool),
    /// A count.
    Number(u64),
    /// Any other number.
    Real(f64),
    /// A name.
    Text(String),
}

macro_rules! value_of {
    ($($variant:ident($from:ty): $it:ident => $to:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($it: $from) -> Self {
                Self::$variant($to)
            }
        }
    )*};
}

value_of! {
    Flag(bool): it => it;
    Number(u32): it => it.into();
    Number(u64): it => it;
    Number(usize): it => it as u64;
    Real(f64): it => it;
    Text(&str): it => it.to_owned();
    Text(String): it => it;
}

/// Where a figure stands: a value for each dimension that its bench names.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Dimensions(BTreeMap<Dimension, Value>);

impl<'de> Deserialize<'de> for Dimensions {
    /// What a later release adds is passed over.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
        let known = |(name, value): (String, serde_json::Value)| {
            let dimension = serde_json::from_value(name.into()).ok()?;
            Some((dimension, serde_json::from_value(value).ok()?))
        };
        Ok(Self(all.into_iter().filter_map(known).collect()))
    }
}

impl Dimensions {
    /// Puts it there.
    pub fn set(&mut self, dimension: Dimension, value: impl Into<Value>) {
        self.0.insert(dimension, value.into());
    }

    /// Takes it away.
    pub fn clear(&mut self, dimension: Dimension) {
        self.0.remove(&dimension);
    }

    /// Where it stands on one.
    #[must_use]
    pub fn get(&self, dimension: Dimension) -> Option<&Value> {
        self.0.get(&dimension)
    }

    /// The number on one that has numbers.
    #[must_use]
    pub fn number(&self, dimension: Dimension) -> Option<f64> {
        match self.get(dimension)? {
            Value::Number(number) => Some(*number as f64),
            Value::Real(number) => Some(*number),
            Value::Flag(_) | Value::Text(_) => None,
        }
    }

    /// Those that a ratio takes over from the row of its dividend.
    #[must_use]
    pub fn of_ratio(&self) -> Self {
        let is_kept = |dimension| matches!(dimension, Size | Second) || HOW.contains(&dimension);
        let kept = self.0.iter().filter(|(dimension, _)| is_kept(**dimension));
        Self(
            kept.map(|(dimension, value)| (*dimension, value.clone()))
                .collect(),
        )
    }

    /// In a cell of the table; empty where it has no place there.
    #[must_use]
    pub fn cell(&self, dimension: Dimension) -> String {
        let Some(value) = self.get(dimension) else {
            return String::new();
        };
        match (dimension, value) {
            (Size, Value::Number(size)) => bytes(*size),
            (Loss, Value::Real(percent)) => format!("{} %", (percent * 100.0).round() / 100.0),
            (First, _) => format!("{} + {}", plain(value), self.plain(Second)),
            (PushedBuffer, _) => format!("buffer {}", plain(value)),
            (Computes, _) => format!("{} computes", plain(value)),
            (Callers, Value::Number(0..=1)) => String::new(),
            (Callers, _) => format!("{} callers", plain(value)),
            (_, Value::Flag(on)) => if *on { "yes" } else { "no" }.to_owned(),
            _ => plain(value),
        }
    }

    /// In a list of what tells figures apart, on the page.
    fn phrase(&self, dimension: Dimension) -> String {
        let text = self.plain(dimension);
        match (dimension, self.get(dimension)) {
            (_, None) | (StalledTraffic | UntakenFlow, Some(Value::Flag(false))) => String::new(),
            (Size, _) => format!("{text} B"),
            (Loss, _) => format!("{text} % lost"),
            (Bursts, _) => format!("bursts of {text}"),
            (Beside, _) => format!("beside {text}"),
            (Interface, _) => format!("by {text}"),
            (Messages, _) => format!("{text} messages"),
            (Entries, _) => format!("{text} entries"),
            (Ranks, _) => format!("{text} ranks"),
            (StalledTraffic, _) => "with traffic to the stalled rank".to_owned(),
            (UntakenFlow, _) => "beside a flow that nobody takes from".to_owned(),
            _ => self.cell(dimension),
        }
    }

    /// Those of these that it has, for the page.
    #[must_use]
    pub fn phrases(&self, dimensions: &[Dimension]) -> String {
        self.joined(dimensions, Self::phrase)
    }

    /// How matched messages were sent, in a cell of the table.
    #[must_use]
    pub fn how(&self) -> String {
        self.joined(&HOW, Self::cell)
    }

    fn joined(&self, dimensions: &[Dimension], text: fn(&Self, Dimension) -> String) -> String {
        let texts = dimensions.iter().map(|dimension| text(self, *dimension));
        let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
        texts.join(", ")
    }

    /// Without unit.
    #[must_use]
    pub fn plain(&self, dimension: Dimension) -> String {
        self.get(dimension).map(plain).unwrap_or_default()
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Flag(on) => on.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text.clone(),
    }
}

/// Bytes as people write them.
fn bytes(size: u64) -> String {
    match size {
        s if s >= 1 << 20 && s.is_multiple_of(1 << 20) => format!("{} MiB", s >> 20),
        s if s >= 1 << 10 && s.is_multiple_of(1 << 10) => format!("{} KiB", s >> 10),
        s => format!("{s} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<const N: usize>(all: [(Dimension, Value); N]) -> Dimensions {
        Dimensions(all.into_iter().collect())
    }

    #[test]
    fn what_is_not_varied_is_not_told() {
        assert_eq!(Dimensions::default().how(), "");
        let late = at([
            (Push, "push-all".into()),
            (Receiver, "late".into()),
            (PushedBuffer, "4096".into()),
        ]);
        assert_eq!(late.how(), "push-all, late, buffer 4096");
        let swept = at([(First, 64_u64.into()), (Second, 0_u64.into())]);
        assert_eq!(swept.how(), "64 + 0");
        assert_eq!(at([(Callers, 1_u32.into())]).how(), "");
    }

    #[test]
    fn values_keep_their_kind_in_json() {
        let all = at([
            (Size, 8_usize.into()),
            (Loss, 0.0.into()),
            (StalledTraffic, true.into()),
            (PushedBuffer, "4096".into()),
        ]);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(
            text,
            r#"{"size":8,"loss":0.0,"pushed_buffer":"4096","stalled_traffic":true}"#
        );
        assert_eq!(serde_json::from_str::<Dimensions>(&text).unwrap(), all);
        let later = text.replace("size", "colour");
        let read: Dimensions = serde_json::from_str(&later).unwrap();
        assert_eq!((read.get(Size), read.number(Loss)), (None, Some(0.0)));
    }

    #[test]
    fn sizes_are_as_people_write_them() {
        assert_eq!(
            [8, 1024, 1500, 1 << 20].map(bytes),
            ["8 B", "1 KiB", "1500 B", "1 MiB"]
        );
    }
}
