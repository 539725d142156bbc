//! What the captions of plots say of a metric.

/// A line for each: its name, the unit, whether less or more is better, and what it
/// is. A bench's own meaning has the bench before the name.
const TEXT: &str = include_str!("metrics.txt");

/// A metric for people.
pub struct Metric<'a> {
    /// What is measured; the metric's name where it is a later release's.
    pub what: &'a str,
    /// The unit; the metric's name where that is not known either.
    pub unit: &'a str,
    /// Which direction is better; empty where none is.
    pub better: &'static str,
}

impl<'a> Metric<'a> {
    /// One of a bench.
    pub fn of(bench: &str, name: &'a str) -> Self {
        let known = |wanted: &str| {
            TEXT.lines().find_map(|line| {
                let mut cells = line.split('|').map(str::trim);
                cells.next().filter(|known| *known == wanted)?;
                Some([cells.next()?, cells.next()?, cells.next()?])
            })
        };
        let found = known(&format!("{bench}/{name}")).or_else(|| known(name));
        let [unit, better, what] = found.unwrap_or([name, "", name]);
        let better = match better {
            "less" => "; less is better",
            "more" => "; more is better",
            _ => "",
        };
        Self { what, unit, better }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_its_unit_and_direction() {
        let of = |bench: &str, name: &str| {
            let Metric { what, unit, better } = Metric::of(bench, name);
            format!("{what}, {unit}{better}")
        };
        assert_eq!(
            of("latency", "latency_us"),
            "One-way latency, us; less is better"
        );
        assert_eq!(
            of("barrier", "latency_us"),
            "Time of a barrier of all ranks, us; less is better"
        );
        assert_eq!(
            of("rate", "rate_msg_s"),
            "Message rate, messages/s; more is better"
        );
        assert!(TEXT.lines().all(|line| line.split('|').count() == 4));
        assert_eq!(of("later", "colour_nm"), "colour_nm, colour_nm");
    }
}
