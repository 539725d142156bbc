//! What a bench found: as JSON in the form that DESIGN.md fixes, and as a
//! table to read.

use std::fmt::Write as _;

use portolan_hosts::table::table;
use serde::{Deserialize, Serialize};

use crate::report::cost;
use crate::report::dimensions::{Dimension, Dimensions, Value};
use crate::report::machine::Machine;
use crate::report::stats::{Quartiles, SLICES_MIN, Series};

/// One measured figure. `p50`, `q1` and `q3` are over slices, the other
/// percentiles over all operations of all slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub system: String,
    /// Which figure; its name says the unit.
    pub metric: String,
    /// Where it stands.
    #[serde(flatten)]
    pub dimensions: Dimensions,
    /// Median.
    pub p50: f64,
    /// Lower quartile.
    pub q1: f64,
    /// Upper quartile.
    pub q3: f64,
    /// Largest or, of what should be large, smallest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<f64>,
    /// The slowest operations.
    #[serde(flatten)]
    pub tail: Tail,
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
}

/// Percentiles of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tail {
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
}

impl Tail {
    /// Of what has so much in 10,000 below it.
    #[must_use]
    pub fn of(below: impl Fn(usize) -> Option<f64>) -> Self {
        Self {
            p99: below(9_900),
            p99_5: below(9_950),
            p99_9: below(9_990),
            p99_99: below(9_999),
        }
    }

    fn cells(&self) -> [Option<f64>; 4] {
        [self.p99, self.p99_5, self.p99_9, self.p99_99]
    }
}

/// A claim: two figures of the same slices, divided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Which figure.
    pub metric: String,
    /// Where it stands.
    #[serde(flatten)]
    pub dimensions: Dimensions,
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
    /// The figures of a system come to be rows like this.
    pub fn of(system: impl Into<String>, ranks: u32) -> Self {
        let row = Self {
            system: system.into(),
            ..Self::default()
        };
        row.at(Dimension::Ranks, ranks)
    }

    /// At this point.
    #[must_use]
    pub fn at(mut self, dimension: Dimension, value: impl Into<Value>) -> Self {
        self.dimensions.set(dimension, value);
        self
    }

    /// At this point, if there is one.
    #[must_use]
    pub fn at_some(self, dimension: Dimension, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.at(dimension, value),
            None => self,
        }
    }

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

    /// A figure at the same point; none where no slice has a value.
    pub fn figure(&self, metric: &str, series: &Series, method: impl Into<String>) -> Option<Self> {
        let row = Self {
            metric: metric.to_owned(),
            n: series.n,
            method: method.into(),
            ..self.clone()
        };
        Some(row.with(&series.quartiles()?))
    }

    /// Figures at the same point, with how each was measured.
    pub fn figures<'a>(
        &self,
        all: impl IntoIterator<Item = (&'a str, &'a Series, &'a str)>,
    ) -> Vec<Self> {
        let figure = |(metric, values, method)| self.figure(metric, values, method);
        all.into_iter().filter_map(figure).collect()
    }

    /// The ratio of this system's figure over another's, at the same point; none
    /// where no slice has both.
    #[must_use]
    pub fn over(&self, metric: &str, ours: &Series, other: &str, theirs: &Series) -> Option<Ratio> {
        Some(self.ratio(metric, other).with(&ours.over(theirs)?))
    }

    /// Such ratios of several figures: ours, and the other's.
    pub fn all_over<'a>(
        &self,
        other: &str,
        all: impl IntoIterator<Item = (&'a str, &'a Series, &'a Series)>,
    ) -> Vec<Ratio> {
        let over = |(metric, ours, theirs)| self.over(metric, ours, other, theirs);
        all.into_iter().filter_map(over).collect()
    }

    /// A ratio over another system, at the same point.
    #[must_use]
    pub fn ratio(&self, metric: &str, other: &str) -> Ratio {
        Ratio {
            metric: metric.to_owned(),
            dimensions: self.dimensions.of_ratio(),
            system: self.system.clone(),
            over: other.to_owned(),
            ..Ratio::default()
        }
    }
}

impl Ratio {
    /// Where its dividend stands on this, too.
    #[must_use]
    pub fn likewise(mut self, dimension: Dimension, of: &Row) -> Self {
        if let Some(value) = of.dimensions.get(dimension) {
            self.dimensions.set(dimension, value.clone());
        }
        self
    }

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
    pub host: Machine,
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

/// Most characters of a bar.
const BAR: f64 = 48.0;

/// A histogram to read. The longest bar is the largest count; a tail of few
/// shows beside millions, so their length is that of the count's logarithm.
fn bars(buckets: &[(f64, u64)]) -> String {
    let log = |count: u64| ((count + 1) as f64).log10();
    let counts = buckets.iter().map(|(_, count)| log(*count));
    let most = counts.fold(1.0, f64::max);
    let line = |(us, count): &(f64, u64)| {
        let length = (log(*count) / most * BAR).round() as usize;
        let bar = "#".repeat(length);
        vec![format!("<= {}", figure(*us)), bar, count.to_string()]
    };
    table("rl", 1, &[], buckets.iter().map(line).collect())
}

/// The table's columns of dimensions, with their titles.
const COLUMNS: [(&str, Dimension); 15] = [
    ("pair", Dimension::Pair),
    ("size", Dimension::Size),
    ("buffers", Dimension::Buffers),
    ("loss", Dimension::Loss),
    ("bursts", Dimension::Bursts),
    ("harm", Dimension::Harm),
    ("beside", Dimension::Beside),
    ("networks", Dimension::Interface),
    // Of a spray: from one side or from both.
    ("sides", Dimension::Pattern),
    ("messages", Dimension::Messages),
    ("entries", Dimension::Entries),
    ("how", Dimension::Push),
    ("ranks", Dimension::Ranks),
    ("to stalled", Dimension::StalledTraffic),
    ("untaken flow", Dimension::UntakenFlow),
];

/// The cells of these columns.
fn cells(at: &Dimensions, with_ranks: bool) -> Vec<String> {
    let cell = |(_, dimension): &(&str, Dimension)| match dimension {
        Dimension::Pattern if at.get(Dimension::Messages).is_none() => String::new(),
        Dimension::Ranks if !with_ranks => String::new(),
        Dimension::Push => at.how(),
        dimension => at.cell(*dimension),
    };
    COLUMNS.iter().map(cell).collect()
}

/// All titles.
fn head(first: [&'static str; 2], last: &[&'static str]) -> Vec<&'static str> {
    let titles = COLUMNS.iter().map(|(title, _)| *title);
    first
        .into_iter()
        .chain(titles)
        .chain(last.iter().copied())
        .collect()
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
        let sleeps = |row: &Row| row.dimensions.plain(Dimension::Wait) == "block";
        if self.rows.iter().any(sleeps) {
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
        // Costs have columns of their own beside the figures.
        let figures = self.rows.iter().filter(|row| !cost::is_cost(row));
        let figures: Vec<&Row> = figures.collect();
        let ranks = |row: &Row| row.dimensions.number(Dimension::Ranks);
        let several = figures.windows(2).any(|two| ranks(two[0]) != ranks(two[1]));
        let line = |row: &&Row| {
            let mut line = vec![row.system.clone(), row.metric.clone()];
            line.extend(cells(&row.dimensions, several));
            let quartiles = format!("{} .. {}", figure(row.q1), figure(row.q3));
            line.extend([figure(row.p50), quartiles, some(row.worst)]);
            line.extend(row.tail.cells().map(some));
            line.extend([row.kept, row.packets_ratio].map(some));
            let costs = cost::COLUMNS.map(|(metric, _)| cost::of(&self.rows, row, metric));
            line.extend(costs.map(some));
            line.push(row.n.to_string());
            line
        };
        let lines = figures.iter().map(line).collect();
        let [message, megabyte, sleeps] = cost::COLUMNS.map(|(_, title)| title);
        let last = [
            "median",
            "quartiles",
            "worst",
            "p99",
            "p99.5",
            "p99.9",
            "p99.99",
            "kept",
            "packets",
            message,
            megabyte,
            sleeps,
            "n",
        ];
        table("llr", 2, &head(["system", "metric"], &last), lines)
    }

    fn ratios_text(&self) -> String {
        let line = |ratio: &Ratio| {
            let mut line = vec![format!("{} / {}", ratio.system, ratio.over)];
            line.push(ratio.metric.clone());
            line.extend(cells(&ratio.dimensions, true));
            line.push(format!("{:.3}", ratio.median));
            line.push(format!("{:.3} .. {:.3}", ratio.q1, ratio.q3));
            let noisy = if ratio.noisy {
                "noisy: run it again"
            } else {
                ""
            };
            line.push(noisy.to_owned());
            line
        };
        let head = head(["ratio", "metric"], &["median", "quartiles", "noisy"]);
        table("llr", 2, &head, self.ratios.iter().map(line).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_are_absent_in_json() {
        let row = Row {
            metric: "latency_us".into(),
            p50: 0.1,
            ..Row::of("portolan-shm", 2).at(Dimension::Size, 8_usize)
        };
        let json = serde_json::to_value(&row).unwrap();
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            [
                "method", "metric", "n", "p50", "q1", "q3", "ranks", "size", "slices", "system"
            ]
        );
        assert_eq!(serde_json::from_value::<Row>(json).unwrap(), row);
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
    }

    #[test]
    fn few_show_beside_many() {
        let text = bars(&[(0.1, 999_999), (0.2, 0), (25.0, 1)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("<= 0.100 {} 999999", "#".repeat(48)));
        assert_eq!(lines[1], format!("<= 0.200 {:48} 0", ""));
        assert!(
            lines[2].contains("##") && lines[2].ends_with(" 1"),
            "{text}"
        );
    }
}
