//! What a bench found: as JSON in the form that DESIGN.md fixes, and as a
//! table to read.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::cost;
use super::how::How;
use super::stats::{Quartiles, SLICES_MIN};

/// One measured figure. `p50`, `q1` and `q3` are over slices, the other
/// percentiles over all operations of all slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub system: String,
    /// Which figure; its name says the unit.
    pub metric: String,
    /// Bytes of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Packets lost on purpose, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Lengths of the bursts in which they were lost, packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts: Option<String>,
    /// What else was done to packets on purpose, as `lab status` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harm: Option<String>,
    /// What else went on at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// Networks that messages went by, where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// How messages followed each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// `warm` or `cold`, where it is chosen where messages lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffers: Option<String>,
    /// `block` where ranks slept until a message came, `call` where they waited in blocking
    /// calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// Messages sent before any is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Receives or messages that wait at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// How matched messages were pushed, where that is varied.
    #[serde(flatten)]
    pub how: How,
    /// Whose messages, in a bench with several pairs: sender and receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
    /// Whether there was traffic towards the stalled rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled_traffic: Option<bool>,
    /// Median.
    pub p50: f64,
    /// Lower quartile.
    pub q1: f64,
    /// Upper quartile.
    pub q3: f64,
    /// Largest or, of what should be large, smallest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<f64>,
    /// 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// 99.5th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_5: Option<f64>,
    /// 99.9th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_9: Option<f64>,
    /// 99.99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_99: Option<f64>,
    /// How many operations took how long: upper ends of buckets, us, and counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Vec<(f64, u64)>>,
    /// Operations.
    pub n: u64,
    /// Slices that have a value.
    pub slices: usize,
    /// How it was measured.
    pub method: String,
    /// Median over slices of bandwidth / ((1 - loss) x bandwidth of the same
    /// slice without loss).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<f64>,
    /// Median over slices of data packets sent / (ceil(bytes / payload of a
    /// packet) / (1 - loss)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_ratio: Option<f64>,
    /// The link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// `encrypt` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    /// `auto`, `lan` or `shared`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Processes of the job.
    pub ranks: u32,
}

/// A claim: two figures of the same slices, divided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Which figure.
    pub metric: String,
    /// Bytes of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Packets lost on purpose, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Lengths of the bursts in which they were lost, packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts: Option<String>,
    /// What else was done to packets on purpose, as `lab status` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harm: Option<String>,
    /// What else went on while the dividend was measured, and the divisor where it is
    /// another system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// `warm` or `cold`, where it is chosen where messages lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffers: Option<String>,
    /// As of rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// Receives or messages that wait at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// How matched messages were pushed, where that is varied.
    #[serde(flatten)]
    pub how: How,
    /// Processes of the job, in a bench of several numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// The dividend.
    pub system: String,
    /// The divisor.
    pub over: String,
    /// Median over slices.
    pub median: f64,
    /// Lower quartile.
    pub q1: f64,
    /// Upper quartile.
    pub q3: f64,
    /// The quartiles are too far apart for a claim.
    pub noisy: bool,
}

impl Row {
    /// With the figures of `quartiles`.
    #[must_use]
    pub fn with(self, quartiles: &Quartiles) -> Self {
        Self {
            p50: quartiles.median,
            q1: quartiles.q1,
            q3: quartiles.q3,
            slices: quartiles.count,
            ..self
        }
    }

    /// A ratio of this system's messages over another's.
    #[must_use]
    pub fn over(&self, metric: &str, other: &str) -> Ratio {
        Ratio {
            metric: metric.to_owned(),
            size: self.size,
            how: self.how.clone(),
            system: self.system.clone(),
            over: other.to_owned(),
            ..Ratio::default()
        }
    }
}

impl Ratio {
    /// With the figures of `quartiles`.
    #[must_use]
    pub fn with(self, quartiles: &Quartiles) -> Self {
        Self {
            median: quartiles.median,
            q1: quartiles.q1,
            q3: quartiles.q3,
            noisy: quartiles.noisy(),
            ..self
        }
    }
}

/// Everything that one run found. `portolan report` reads it again; what a
/// later release adds it passes over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The bench's name.
    pub bench: String,
    /// The machine.
    pub host: super::host::Host,
    /// Figures.
    pub rows: Vec<Row>,
    /// Claims.
    pub ratios: Vec<Ratio>,
    /// Share of the machine's CPU time that its hypervisor gave to others.
    pub steal: f64,
    /// Remarks for the reader of the table.
    #[serde(skip)]
    pub remarks: Vec<String>,
}

/// A figure to three or four digits.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.2}M", value / 1e6),
        v if v >= 1e4 => format!("{:.1}k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Bytes as people write them.
fn bytes(size: usize) -> String {
    match size {
        s if s >= 1 << 20 && s.is_multiple_of(1 << 20) => format!("{} MiB", s >> 20),
        s if s >= 1 << 10 && s.is_multiple_of(1 << 10) => format!("{} KiB", s >> 10),
        s => format!("{s} B"),
    }
}

/// Columns as wide as their widest cell, the first two flush left.
pub fn table(head: &[&str], lines: &[Vec<String>]) -> String {
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(k, title)| {
            lines
                .iter()
                .map(|line| line[k].chars().count())
                .fold(title.chars().count(), usize::max)
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: &[&str]| {
        let mut row = String::new();
        for (k, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            if *width == 0 {
                continue;
            }
            let _ = if k < 2 {
                write!(row, "{cell:<width$}  ")
            } else {
                write!(row, "{cell:>width$}  ")
            };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    };
    line(head);
    for cells in lines {
        line(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

/// Most characters of a bar.
const BAR: f64 = 48.0;

/// A histogram to read. The longest bar is the largest count; a tail of few
/// shows beside millions, so their length is that of the count's logarithm.
fn bars(buckets: &[(f64, u64)]) -> String {
    let log = |count: u64| ((count + 1) as f64).log10();
    let most = buckets
        .iter()
        .map(|(_, count)| log(*count))
        .fold(1.0, f64::max);
    let mut text = String::new();
    for (us, count) in buckets {
        let length = (log(*count) / most * BAR).round() as usize;
        let _ = writeln!(
            text,
            "{:>9} {:<48} {count}",
            format!("<= {}", figure(*us)),
            "#".repeat(length)
        );
    }
    text
}

impl Report {
    /// The table.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.host.line());
        text.push_str(&self.rows_text());
        if !self.ratios.is_empty() {
            text.push('\n');
            text.push_str(&self.ratios_text());
        }
        for row in &self.rows {
            if let Some(buckets) = &row.histogram {
                let _ = writeln!(text, "\n{}, us one way (bars: powers of ten)", row.system);
                text.push_str(&bars(buckets));
            }
        }
        let mut remarks = self.remarks.clone();
        if self
            .rows
            .iter()
            .any(|row| row.wait.as_deref() == Some("block"))
        {
            remarks.push("both sides slept in the kernel until a message came".to_owned());
        }
        if self.rows.iter().any(|row| row.slices < SLICES_MIN) {
            remarks.push(format!(
                "fewer than {SLICES_MIN} slices somewhere: no claim can rest on that"
            ));
        }
        if self.steal >= 0.01 {
            remarks.push(format!(
                "{:.1} % of the CPU time was stolen by the hypervisor",
                self.steal * 100.0
            ));
        }
        if !remarks.is_empty() {
            text.push('\n');
        }
        for remark in remarks {
            let _ = writeln!(text, "{remark}");
        }
        text
    }

    fn rows_text(&self) -> String {
        let some = |value: Option<f64>| value.map(figure).unwrap_or_default();
        let has = |field: fn(&Row) -> bool, title| {
            if self.rows.iter().any(field) {
                title
            } else {
                ""
            }
        };
        // Costs have columns of their own beside the figures.
        let figures: Vec<&Row> = (self.rows.iter())
            .filter(|row| !cost::is_cost(row))
            .collect();
        let costs = cost::COLUMNS.map(|(metric, title)| {
            let any = self.rows.iter().any(|row| row.metric == metric);
            (metric, if any { title } else { "" })
        });
        let several = figures
            .windows(2)
            .any(|pair| pair[0].ranks != pair[1].ranks);
        let head = [
            "system",
            "metric",
            has(|row| row.pair.is_some(), "pair"),
            has(|row| row.size.is_some(), "size"),
            has(|row| row.buffers.is_some(), "buffers"),
            has(|row| row.loss.is_some(), "loss"),
            has(|row| row.bursts.is_some(), "bursts"),
            has(|row| row.harm.is_some(), "harm"),
            has(|row| row.beside.is_some(), "beside"),
            has(|row| row.interface.is_some(), "networks"),
            has(|row| row.messages.is_some(), "sides"),
            has(|row| row.messages.is_some(), "messages"),
            has(|row| row.entries.is_some(), "entries"),
            has(|row| row.how != How::default(), "how"),
            if several { "ranks" } else { "" },
            has(|row| row.stalled_traffic.is_some(), "to stalled"),
            "median",
            "quartiles",
            has(|row| row.worst.is_some(), "worst"),
            has(|row| row.p99.is_some(), "p99"),
            has(|row| row.p99.is_some(), "p99.5"),
            has(|row| row.p99.is_some(), "p99.9"),
            has(|row| row.p99.is_some(), "p99.99"),
            has(|row| row.kept.is_some(), "kept"),
            has(|row| row.packets_ratio.is_some(), "packets"),
            costs[0].1,
            costs[1].1,
            costs[2].1,
            "n",
        ];
        let lines: Vec<Vec<String>> = figures
            .iter()
            .map(|row| {
                let cost = |(metric, _)| some(cost::of(&self.rows, row, metric));
                let [of_message, of_megabyte, sleeps] = costs.map(cost);
                vec![
                    row.system.clone(),
                    row.metric.clone(),
                    row.pair.clone().unwrap_or_default(),
                    row.size.map(bytes).unwrap_or_default(),
                    row.buffers.clone().unwrap_or_default(),
                    row.loss.map(share).unwrap_or_default(),
                    row.bursts.clone().unwrap_or_default(),
                    row.harm.clone().unwrap_or_default(),
                    row.beside.clone().unwrap_or_default(),
                    row.interface.clone().unwrap_or_default(),
                    row.messages.and(row.pattern.clone()).unwrap_or_default(),
                    row.messages.map(|n| n.to_string()).unwrap_or_default(),
                    row.entries.map(|n| n.to_string()).unwrap_or_default(),
                    row.how.text(),
                    if several {
                        row.ranks.to_string()
                    } else {
                        String::new()
                    },
                    row.stalled_traffic
                        .map(|on| if on { "yes" } else { "no" }.to_owned())
                        .unwrap_or_default(),
                    figure(row.p50),
                    format!("{} .. {}", figure(row.q1), figure(row.q3)),
                    some(row.worst),
                    some(row.p99),
                    some(row.p99_5),
                    some(row.p99_9),
                    some(row.p99_99),
                    some(row.kept),
                    some(row.packets_ratio),
                    of_message,
                    of_megabyte,
                    sleeps,
                    row.n.to_string(),
                ]
            })
            .collect();
        table(&head, &lines)
    }

    fn ratios_text(&self) -> String {
        let has = |field: fn(&Ratio) -> bool, title| {
            if self.ratios.iter().any(field) {
                title
            } else {
                ""
            }
        };
        let head = [
            "ratio",
            "metric",
            has(|ratio| ratio.size.is_some(), "size"),
            has(|ratio| ratio.buffers.is_some(), "buffers"),
            has(|ratio| ratio.loss.is_some(), "loss"),
            has(|ratio| ratio.bursts.is_some(), "bursts"),
            has(|ratio| ratio.harm.is_some(), "harm"),
            has(|ratio| ratio.beside.is_some(), "beside"),
            has(|ratio| ratio.entries.is_some(), "entries"),
            has(|ratio| ratio.how != How::default(), "how"),
            has(|ratio| ratio.ranks.is_some(), "ranks"),
            "median",
            "quartiles",
            has(|ratio| ratio.noisy, "noisy"),
        ];
        let lines: Vec<Vec<String>> = self
            .ratios
            .iter()
            .map(|ratio| {
                vec![
                    format!("{} / {}", ratio.system, ratio.over),
                    ratio.metric.clone(),
                    ratio.size.map(bytes).unwrap_or_default(),
                    ratio.buffers.clone().unwrap_or_default(),
                    ratio.loss.map(share).unwrap_or_default(),
                    ratio.bursts.clone().unwrap_or_default(),
                    ratio.harm.clone().unwrap_or_default(),
                    ratio.beside.clone().unwrap_or_default(),
                    ratio.entries.map(|n| n.to_string()).unwrap_or_default(),
                    ratio.how.text(),
                    ratio.ranks.map(|n| n.to_string()).unwrap_or_default(),
                    format!("{:.3}", ratio.median),
                    format!("{:.3} .. {:.3}", ratio.q1, ratio.q3),
                    if ratio.noisy {
                        "noisy: run it again"
                    } else {
                        ""
                    }
                    .to_owned(),
                ]
            })
            .collect();
        table(&head, &lines)
    }
}

/// Percent, as people write them.
fn share(percent: f64) -> String {
    format!("{} %", (percent * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_are_absent_in_json() {
        let row = Row {
            system: "portolan-shm".into(),
            metric: "latency_us".into(),
            size: Some(8),
            p50: 0.1,
            ..Row::default()
        };
        let json = serde_json::to_value(&row).unwrap();
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            [
                "method", "metric", "n", "p50", "q1", "q3", "ranks", "size", "slices", "system"
            ]
        );
    }

    #[test]
    fn a_ratio_carries_its_noise() {
        let wide = Quartiles {
            q1: 0.8,
            median: 1.0,
            q3: 1.3,
            count: 21,
        };
        let json = serde_json::to_value(Ratio::default().with(&wide)).unwrap();
        assert_eq!(json["noisy"], true);
        assert_eq!(
            (
                json["q1"].as_f64(),
                json["median"].as_f64(),
                json["q3"].as_f64()
            ),
            (Some(0.8), Some(1.0), Some(1.3))
        );
    }

    #[test]
    fn figures_keep_three_digits() {
        let texts: Vec<String> = [0.1234, 1.234, 12.34, 123.4, 12_340.0, 5_123_456.0]
            .map(figure)
            .into();
        assert_eq!(texts, ["0.123", "1.23", "12.3", "123", "12.3k", "5.12M"]);
        assert_eq!(
            [8, 1024, 1500, 1 << 20].map(bytes),
            ["8 B", "1 KiB", "1500 B", "1 MiB"]
        );
    }

    #[test]
    fn few_show_beside_many() {
        let text = bars(&[(0.1, 999_999), (0.2, 0), (25.0, 1)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!(" <= 0.100 {} 999999", "#".repeat(48)));
        assert_eq!(lines[1], format!(" <= 0.200 {:48} 0", ""));
        assert!(
            lines[2].contains("##") && lines[2].ends_with(" 1"),
            "{text}"
        );
    }

    #[test]
    fn empty_columns_are_left_out() {
        let text = table(
            &["a", "b", "", "c"],
            &[vec!["1".into(), "22".into(), String::new(), "3".into()]],
        );
        assert_eq!(text, "a  b   c\n1  22  3\n");
    }
}
