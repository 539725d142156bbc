//! What the captions of plots say of a metric.

/// Metrics of which less is better, and what they are. A bench's own meaning
/// stands before the metric's usual one.
const LESS: [(&str, &str); 42] = [
    ("barrier/latency_us", "Time of a barrier of all ranks"),
    ("ring/latency_us", "Time of a token's round over all ranks"),
    ("overlap/message_us", "Time of a message without computing"),
    (
        "overlap/cpu_us",
        "Processor time of a message with its computing",
    ),
    ("latency_us", "One-way latency"),
    ("line_latency_us", "One-way latency by a single cache line"),
    ("round_trip_us", "Round trip"),
    (
        "exchange_us",
        "Time from the later side's call until the message is there",
    ),
    ("cpu_us", "Processor time of both ranks for a message"),
    (
        "cpu_us_per_mb",
        "Processor time of all ranks for a million bytes",
    ),
    ("sleeps", "Sleeps of both ranks for a message"),
    (
        "away_cpu_percent",
        "Processor time of an idle rank, its program elsewhere",
    ),
    (
        "waiting_cpu_percent",
        "Processor time of an idle rank, its program in a wait",
    ),
    (
        "half_power_bytes",
        "Message size that reaches half of the best bandwidth",
    ),
    ("fit_start_us", "Fit of the time of a message: start"),
    (
        "fit_half_power_bytes",
        "Fit of the time of a message: half-power point",
    ),
    ("gap_us", "Gap: time of a message among many"),
    ("unpaced_gap_us", "Gap between sends while there is credit"),
    ("o_send_us", "Overhead of a send"),
    ("o_recv_us", "Overhead of a receive"),
    ("l_us", "One-way latency without both overheads"),
    ("g_us", "Gap of a stream of small messages"),
    (
        "message_us",
        "Time of a message until its sender knows of its arrival",
    ),
    (
        "message_slowness",
        "Time of a message over that with equal shares of the line",
    ),
    ("packets_ratio", "Packets sent over those that are needed"),
    (
        "resume_ms",
        "Time from plugging the cable in to the next arrival",
    ),
    (
        "full_rate_ms",
        "Time from plugging the cable in to 0.9 of the rate before",
    ),
    ("messages_lost", "Messages of a stream that never came"),
    (
        "messages_again",
        "Messages of a stream that came twice or too late",
    ),
    (
        "answered_share",
        "Bytes in answer to forged packets, over theirs",
    ),
    (
        "match_unexpected_ns",
        "Matching a receive to a message that waits",
    ),
    (
        "match_posted_ns",
        "Matching a message to a receive that waits",
    ),
    (
        "match_unexpected_any_ns",
        "Matching a receive from any source to a message that waits",
    ),
    (
        "match_posted_any_ns",
        "Matching a message to a receive from any source that waits",
    ),
    ("both_us", "Time of a message and of computing together"),
    ("register_us", "Time to register memory and to end that"),
    (
        "start_ms",
        "Time from the launcher's start until all ranks have met",
    ),
    ("job_ms", "Time from the launcher's start to its end"),
    (
        "death_us",
        "Time from a rank's death until others are notified",
    ),
    (
        "peer_never_bytes",
        "Memory of a peer that is never talked to",
    ),
    (
        "peer_quiet_bytes",
        "Memory of a peer that was talked to and is quiet",
    ),
    ("endpoint_bytes", "Memory of an endpoint without peers"),
];

/// Those of which more is better.
const MORE: [(&str, &str); 6] = [
    ("bandwidth_mb_s", "Bandwidth"),
    ("goodput_mb_s", "Goodput: payload that arrived"),
    ("rate_msg_s", "Message rate"),
    ("link_share", "Share of the line's rate"),
    (
        "hidden",
        "Share of a message's time that is hidden behind computing",
    ),
    (
        "fit_bandwidth_mb_s",
        "Fit of the time of a message: bandwidth",
    ),
];

/// Those that are neither: a load, or a property of the setting.
const NEITHER: [(&str, &str); 3] = [
    ("computing_us", "Time of the computing without a message"),
    (
        "messages_unread",
        "Messages sent until the first finds no credit",
    ),
    ("forged_packets_s", "Forged packets that were sent"),
];

/// By the end of a metric's name.
const UNITS: [(&str, &str); 9] = [
    ("_us_per_mb", "us per million bytes"),
    ("_us", "us"),
    ("_ns", "ns"),
    ("_ms", "ms"),
    ("_mb_s", "MB/s"),
    ("_msg_s", "messages/s"),
    ("_packets_s", "packets/s"),
    ("_bytes", "bytes"),
    ("_percent", "% of a core"),
];

/// A metric for people.
pub struct Metric {
    /// What is measured; the metric's name where it is a later release's.
    pub what: String,
    /// The unit; the metric's name where it has none.
    pub unit: String,
    /// Which direction is better; empty where none is.
    pub better: &'static str,
}

impl Metric {
    /// One of a bench.
    pub fn of(bench: &str, name: &str) -> Self {
        let own = format!("{bench}/{name}");
        let kinds = [
            (&LESS[..], "; less is better"),
            (&MORE[..], "; more is better"),
            (&NEITHER[..], ""),
        ];
        let known = |wanted: &str| {
            kinds.iter().find_map(|(all, better)| {
                let (_, what) = all.iter().find(|(known, _)| *known == wanted)?;
                Some((*what, *better))
            })
        };
        let (what, better) = known(&own).or_else(|| known(name)).unwrap_or((name, ""));
        let unit = UNITS.iter().find(|(end, _)| name.ends_with(end));
        Self {
            what: what.to_owned(),
            unit: unit.map_or(name, |(_, unit)| unit).to_owned(),
            better,
        }
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
        assert_eq!(of("later", "colour_nm"), "colour_nm, colour_nm");
    }
}
