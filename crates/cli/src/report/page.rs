//! The page: a section for each bench, with plots, claims and all figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use portolan_bench::Dimension::{self, *};
use portolan_bench::{Ratio, Row};
use portolan_hosts::failure::Result;

use super::metric::Metric;
use super::plot::{self, Bar, PlotLine, number};
use super::read::File;
use super::supersteps::Profile;

const STYLE: &str = "
:root { color-scheme: light dark; --back: #ffffff; --text: #1a1a1a; --faint: #666666; --line: #d8d8d8; }
@media (prefers-color-scheme: dark) { :root { --back: #15181c; --text: #e8e8e8; --faint: #a0a0a0; --line: #3a3f46; } }
body { background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
svg { max-width: 100%; height: auto; }
figure { margin: 1rem 0; } figcaption { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.2rem 0.9rem 0.2rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.n, th.n { text-align: right; } .faint { color: var(--faint); }
";

/// The benches in the order of the page, with what they are about.
const BENCHES: [(&str, &str); 11] = [
    ("latency", "Latency"),
    ("jitter", "Jitter"),
    ("bandwidth", "Bandwidth"),
    ("rate", "Message rate"),
    ("logp", "LogP parameters"),
    ("spray", "Spray"),
    ("barrier", "Barrier"),
    ("bsp", "BSPlib"),
    ("start", "Starting jobs"),
    ("stalled", "A stalled receiver"),
    ("idle", "Idle endpoints"),
];

/// The whole page.
pub fn page(files: &[File], profile: Option<&Profile>) -> Result<String> {
    let place = |bench: &str| BENCHES.iter().position(|(name, _)| *name == bench);
    let mut by_bench: BTreeMap<(usize, &str), Vec<&File>> = BTreeMap::new();
    for file in files {
        let bench = file.report.bench.as_str();
        let key = (place(bench).unwrap_or(BENCHES.len()), bench);
        by_bench.entry(key).or_default().push(file);
    }
    let all = by_bench.values().flatten();
    let colours = Colours::of(all.flat_map(|file| &file.report.rows));
    let section = |((place, bench), files): (&(usize, &str), &Vec<&File>)| {
        let title = BENCHES.get(*place).map_or(*bench, |(_, title)| title);
        section(bench, title, files, &colours)
    };
    let sections: Vec<Markup> = by_bench.iter().map(section).collect::<Result<_>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Portolan: measured" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Portolan: measured" }
                @for host in hosts(files) { p { (host) } }
                @if !files.is_empty() {
                    p.faint {
                        "Bars are medians over slices, the thin line spans the quartiles. A ratio \
                         is the median over slices of two figures of the same slice. A system has \
                         the same colour in all plots."
                    }
                }
                @for section in &sections { (section) }
                @if let Some(profile) = profile { (profile.section()) }
            }
        }
    };
    Ok(page.into_string())
}

/// The machines that figures come from.
fn hosts(files: &[File]) -> Vec<String> {
    let mut all = Vec::new();
    for host in files.iter().map(|file| &file.report.host) {
        let lab = host.lab.as_ref();
        let lab = lab.map_or(String::new(), |name| format!(", lab {name}"));
        let clock = host.clock.as_deref().unwrap_or("unknown");
        let about = format!(
            "{}: {}, {} cores, {} GB, {}, Linux {}, clock {clock}{lab}; Portolan {}",
            host.name,
            host.cpu,
            host.cores,
            host.memory_mb / 1000,
            host.arch,
            host.kernel,
            host.portolan
        );
        if !all.contains(&about) {
            all.push(about);
        }
    }
    all
}

fn section(bench: &str, title: &str, files: &[&File], colours: &Colours<'_>) -> Result<Markup> {
    let rows: Vec<&Row> = files.iter().flat_map(|file| &file.report.rows).collect();
    let ratios: Vec<&Ratio> = files.iter().flat_map(|file| &file.report.ratios).collect();
    let pictures = pictures(bench, &rows, colours)?;
    Ok(html! {
        h2 id=(bench) { (title) }
        @for (caption, picture) in &pictures {
            figure { (PreEscaped(picture)) figcaption { (caption) } }
        }
        @if !ratios.is_empty() {
            h3 { "Ratios" }
            (claims(&ratios))
        }
        details {
            summary { "All figures" }
            (figures(&rows))
        }
        @for file in files.iter().filter(|file| file.report.steal >= 0.01) {
            p.faint {
                (file.name) ": " (format!("{:.1}", 100.0 * file.report.steal))
                " % of the CPU time was stolen by the hypervisor"
            }
        }
    })
}

/// A table in which these columns are flush right.
pub fn table(
    head: &[&str],
    right: RangeInclusive<usize>,
    lines: impl Iterator<Item = Vec<String>>,
) -> Markup {
    let class = |column: usize| right.contains(&column).then_some("n");
    html! {
        div.wide {
            table {
                tr {
                    @for (column, title) in head.iter().enumerate() {
                        th class=[class(column)] { (title) }
                    }
                }
                @for cells in lines {
                    tr {
                        @for (column, cell) in cells.iter().enumerate() {
                            td class=[class(column)] { (cell) }
                        }
                    }
                }
            }
        }
    }
}

/// Each system's colour: by its place among all systems of the page.
struct Colours<'a>(Vec<&'a str>);

impl<'a> Colours<'a> {
    fn of(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut systems: Vec<&str> = Vec::new();
        for row in rows {
            if !systems.contains(&row.system.as_str()) {
                systems.push(&row.system);
            }
        }
        Self(systems)
    }

    fn place(&self, row: &Row) -> usize {
        let known = self.0.iter().position(|system| *system == row.system);
        known.unwrap_or_default()
    }
}

/// What tells systems apart: how ranks waited, where messages lay, and how they
/// were pushed.
const HOW: [Dimension; 9] = [
    Wait,
    Buffers,
    Push,
    First,
    Receiver,
    PushedBuffer,
    Computes,
    Threads,
    Callers,
];

/// What one plot shows: a metric; of early and late receivers each for itself,
/// and each pushed buffer.
fn plotted(row: &Row) -> (&str, String, String) {
    let at = &row.dimensions;
    (&row.metric, at.plain(Receiver), at.plain(PushedBuffer))
}

/// Plots of some rows: lines over sizes or messages where there are several,
/// else bars beside each other; and histograms.
fn pictures(bench: &str, rows: &[&Row], colours: &Colours<'_>) -> Result<Vec<(String, String)>> {
    let mut pictures = Vec::new();
    let mut plots: Vec<_> = rows.iter().map(|row| plotted(row)).collect();
    plots.sort_unstable();
    plots.dedup();
    for plot in plots {
        let (name, receiver, buffer) = &plot;
        let Metric { what, unit, better } = Metric::of(bench, name);
        let mut of_plot = String::new();
        if !receiver.is_empty() {
            let _ = write!(of_plot, ", {receiver} receiver");
        }
        if !buffer.is_empty() {
            let _ = write!(of_plot, ", pushed buffer {buffer}");
        }
        let of_metric: Vec<&Row> = (rows.iter().copied())
            .filter(|row| plotted(row) == plot)
            .collect();
        let axes = [
            (Messages, "messages", "messages sent before any is read"),
            (Entries, "entries", "how many wait"),
            (Size, "bytes", "size"),
        ];
        let over = |(dimension, axis, by)| {
            let x = |row: &Row| row.dimensions.number(dimension);
            Some((lines_over(&of_metric, x, colours)?, axis, by))
        };
        let (shown, scale, picture) =
            if let Some((lines, axis, by)) = axes.into_iter().find_map(over) {
                let picture = plot::lines(axis, unit, &lines)?;
                (format!(" by {by}"), "; logarithmic axes", picture)
            } else {
                let bar = |row: &&Row| Bar {
                    name: label(row),
                    colour: colours.place(row),
                    quartiles: [row.q1, row.p50, row.q3],
                };
                let bars: Vec<Bar> = of_metric.iter().map(bar).collect();
                let size = of_metric[0].dimensions.number(Size);
                let size = size.map_or(String::new(), |size| format!(", {size} bytes"));
                let (scale, picture) = plot::bars(&bars)?;
                (size, scale, picture)
            };
        let caption = format!("{what} ({name}){shown}{of_plot}: {unit}{better}{scale}");
        pictures.push((caption, picture));
    }
    let histogram = |row: &&Row| {
        let buckets = row.histogram.as_ref()?;
        let line = match row.metric.as_str() {
            "line_latency_us" => ", one line",
            _ => "",
        };
        Some(PlotLine {
            name: format!("{}{line}", row.system),
            colour: colours.place(row),
            variant: usize::from(!line.is_empty()),
            points: buckets.iter().map(|(us, n)| (*us, *n as f64)).collect(),
        })
    };
    let histograms: Vec<PlotLine> = rows.iter().filter_map(histogram).collect();
    if !histograms.is_empty() {
        let picture = plot::lines("us one way", "messages", &histograms)?;
        let caption = "How many messages took how long: us one way; further left is better; \
                       logarithmic axes";
        pictures.push((caption.to_owned(), picture));
    }
    Ok(pictures)
}

/// A line for each system and pattern over what `x` gives; `None` if no line
/// would have two points.
fn lines_over(
    rows: &[&Row],
    x: impl Fn(&Row) -> Option<f64>,
    colours: &Colours<'_>,
) -> Option<Vec<PlotLine>> {
    // In the order of the rows: ourselves first.
    let mut lines: Vec<PlotLine> = Vec::new();
    for row in rows {
        let Some(x) = x(row) else { continue };
        let (name, colour) = (series(row), colours.place(row));
        let alike = lines.iter().filter(|line| line.colour == colour).count();
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((x, row.p50)),
            None => lines.push(PlotLine {
                name,
                colour,
                variant: alike,
                points: vec![(x, row.p50)],
            }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let long = lines.iter().any(|line| {
        let first = line.points.first().map(|p| p.0);
        line.points.iter().any(|p| Some(p.0) != first)
    });
    long.then_some(lines)
}

/// Whose figure it is, with what these dimensions say of it.
fn named(row: &Row, dimensions: &[Dimension]) -> String {
    let mut name = row.system.clone();
    let phrases = row.dimensions.phrases(dimensions);
    if !phrases.is_empty() {
        let _ = write!(name, ", {phrases}");
    }
    name
}

/// What tells a line of a plot from another.
fn series(row: &Row) -> String {
    let mut name = named(row, &HOW);
    if row.dimensions.get(Messages).is_some() {
        let _ = write!(name, ", {}", row.dimensions.phrases(&[Size, Pattern]));
    }
    name
}

/// What tells a bar from another.
fn label(row: &Row) -> String {
    let ranks = row.metric == "start_ms" || row.metric == "job_ms";
    let others = [Loss, Bursts, Beside, Interface, Pair, StalledTraffic];
    let all = [&HOW[..], &others, if ranks { &[Ranks] } else { &[] }];
    named(row, &all.concat())
}

fn claims(ratios: &[&Ratio]) -> Markup {
    let conditions = [
        &[Size, Loss, Ranks][..],
        &HOW,
        &[Bursts, Harm, Beside, Entries],
    ]
    .concat();
    let head = ["of", "over", "figure", "", "median", "quartiles", ""];
    let line = |ratio: &&Ratio| {
        vec![
            ratio.system.clone(),
            ratio.over.clone(),
            ratio.metric.clone(),
            ratio.dimensions.phrases(&conditions),
            format!("{:.3}", ratio.median),
            format!("{:.3} to {:.3}", ratio.q1, ratio.q3),
            if ratio.noisy { "noisy" } else { "" }.to_owned(),
        ]
    };
    table(&head, 4..=5, ratios.iter().map(line))
}

fn figures(rows: &[&Row]) -> Markup {
    let head = [
        "system",
        "figure",
        "",
        "median",
        "quartiles",
        "p99",
        "p99.9",
        "p99.99",
        "n",
        "method",
    ];
    let some = |value: Option<f64>| value.map(number).unwrap_or_default();
    let line = |row: &&Row| {
        let conditions = [Size, Loss, Ranks, Messages, Entries, Pattern];
        vec![
            label(row),
            row.metric.clone(),
            row.dimensions.phrases(&conditions),
            number(row.p50),
            format!("{} to {}", number(row.q1), number(row.q3)),
            some(row.tail.p99),
            some(row.tail.p99_9),
            some(row.tail.p99_99),
            row.n.to_string(),
            row.method.clone(),
        ]
    };
    table(&head, 3..=8, rows.iter().map(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: &str, ratios: &str) -> File {
        let text = format!(
            r#"{{"bench":"latency","steal":0.02,"later":1,"rows":{rows},"ratios":{ratios},
                "host":{{"name":"a<b","kernel":"6","arch":"x86_64","cpu":"C & D","cores":2,
                "memory_mb":4000,"portolan":"0.1.0","pinned":[0,1]}}}}"#
        );
        File {
            name: "one.json".to_owned(),
            report: serde_json::from_str(&text).unwrap(),
        }
    }

    fn row(system: &str, size: u64, p50: f64) -> String {
        format!(
            r#"{{"system":"{system}","metric":"latency_us","size":{size},"p50":{p50},"q1":{p50},
                "q3":{p50},"n":9,"slices":3,"method":"half","ranks":2}}"#
        )
    }

    #[test]
    fn several_sizes_make_lines_and_one_makes_bars() {
        let one = format!("[{},{}]", row("ours", 8, 0.1), row("theirs", 8, 0.2));
        let html = page(&[report(&one, "[]")], None).unwrap();
        assert!(
            html.contains("One-way latency (latency_us), 8 bytes: us; less is better<")
                && html.contains("<svg"),
            "{html}"
        );
        let two = format!("[{},{}]", row("ours", 8, 0.1), row("ours", 64, 0.2));
        let html = page(&[report(&two, "[]")], None).unwrap();
        assert!(
            html.contains("(latency_us) by size: us; less is better; logarithmic axes<"),
            "{html}"
        );
    }

    #[test]
    fn what_is_pushed_otherwise_is_another_line() {
        let pushed = |size, how: &str| {
            let how = format!(r#""push":"{how}","ranks":2"#);
            row("ours", size, 0.1).replace(r#""ranks":2"#, &how)
        };
        let rows = [(8, "none"), (64, "none"), (8, "both"), (64, "both")];
        let rows = rows.map(|(size, how)| pushed(size, how)).join(",");
        let ratio = r#"[{"metric":"latency_us","size":8,"push":"both","system":"ours",
            "over":"ours","median":1,"q1":1,"q3":1,"noisy":false}]"#;
        let html = page(&[report(&format!("[{rows}]"), ratio)], None).unwrap();
        let (plots, tables) = html.split_once("<h3>Ratios").unwrap();
        assert!(
            plots.contains("ours, none") && plots.contains("ours, both"),
            "{html}"
        );
        assert!(tables.contains("8 B, both"), "{html}");
    }

    #[test]
    fn early_and_late_receivers_have_a_plot_each() {
        let at = |size, receiver: &str, how: &str| {
            let how = format!(
                r#""push":"{how}","receiver":"{receiver}","pushed_buffer":"4096","ranks":2"#
            );
            row("ours", size, 0.1).replace(r#""ranks":2"#, &how)
        };
        let mut rows = Vec::new();
        for receiver in ["early", "late"] {
            for how in ["push-zero", "push-all"] {
                rows.extend([8, 64].map(|size| at(size, receiver, how)));
            }
        }
        let html = page(&[report(&format!("[{}]", rows.join(",")), "[]")], None).unwrap();
        let plots: Vec<&str> = html.split("<figure>").skip(1).collect();
        assert_eq!(plots.len(), 2, "{html}");
        for (plot, receiver) in plots.iter().zip(["early", "late"]) {
            let caption = format!(" by size, {receiver} receiver, pushed buffer 4096: us; less");
            assert!(plot.contains(&caption), "{plot}");
            for line in ["push-zero", "push-all"] {
                assert!(
                    plot.contains(&format!("ours, {line}, {receiver}")),
                    "{plot}"
                );
            }
        }
    }

    #[test]
    fn names_cannot_become_markup() {
        let ratios = r#"[{"metric":"latency_us","system":"<script>","over":"b","median":1,"q1":1,
            "q3":1,"noisy":true}]"#;
        let html = page(
            &[report(&format!("[{}]", row("<b>", 8, 1.0)), ratios)],
            None,
        )
        .unwrap();
        assert!(
            !html.contains("<script>") && !html.contains("<b>"),
            "{html}"
        );
        assert!(
            html.contains("a&lt;b") && html.contains("C &amp; D"),
            "{html}"
        );
        assert!(html.contains("noisy") && html.contains("stolen"), "{html}");
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            let inside = html.replace("http://www.w3.org/2000/svg", "");
            assert!(!inside.contains(outside), "{outside}");
        }
    }
}
