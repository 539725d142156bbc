//! What rows and ratios of matched messages say beside the size.

use serde::{Deserialize, Serialize};

/// How messages were pushed, and who was busy. Each field is there only where
/// a bench varies it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct How {
    /// `none`, `masking`, `overlap` or `both`, or `pushed`, `pulled` or `shared`;
    /// of `early-late` `push-zero`, `push-pull` or `push-all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<String>,
    /// Bytes that leave with the offer of a longer message: BTP(1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// Bytes that follow it at once: BTP(2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<u64>,
    /// `early` or `late`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<String>,
    /// What each sender may push before it is asked, bytes; or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed_buffer: Option<String>,
    /// `sender` or `receiver`: who computes beside its message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computes: Option<String>,
    /// `single`, `serialized` or `multiple`: which threads may call the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<String>,
    /// How many call at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callers: Option<u32>,
}

impl How {
    /// In a cell of the table.
    #[must_use]
    pub fn text(&self) -> String {
        let thresholds = (self.first.zip(self.second)).map(|(a, b)| format!("{a} + {b}"));
        let buffer = (self.pushed_buffer.as_ref()).map(|bytes| format!("buffer {bytes}"));
        let computes = (self.computes.as_ref()).map(|side| format!("{side} computes"));
        let callers = (self.callers.filter(|count| *count > 1)).map(|n| format!("{n} callers"));
        let parts = [
            self.push.clone(),
            thresholds,
            self.receiver.clone(),
            buffer,
            computes,
            self.threads.clone(),
            callers,
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_varied_is_not_told() {
        assert_eq!(How::default().text(), "");
        let how = How {
            push: Some("push-all".into()),
            receiver: Some("late".into()),
            pushed_buffer: Some("4096".into()),
            ..How::default()
        };
        assert_eq!(how.text(), "push-all, late, buffer 4096");
        let swept = How {
            first: Some(64),
            second: Some(0),
            ..How::default()
        };
        assert_eq!(swept.text(), "64 + 0");
    }
}
