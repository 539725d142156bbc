//! The page: a section for each bench, with plots, claims and all figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use portolan_bench::Dimension::{self, *};
use portolan_bench::{Machine, Ratio, Row};
use portolan_hosts::failure::Result;

use super::plot::{self, Legend, Line, number};
use super::read::File;

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
const BENCHES: [(&str, &str); 10] = [
    ("latency", "Latency"),
    ("jitter", "Jitter"),
    ("bandwidth", "Bandwidth"),
    ("rate", "Message rate"),
    ("logp", "LogP parameters"),
    ("spray", "Spray"),
    ("barrier", "Barrier"),
    ("start", "Starting jobs"),
    ("stalled", "A stalled receiver"),
    ("idle", "Idle endpoints"),
];

/// Text as it may stand in HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}

/// The whole page.
pub fn html(files: &[File]) -> Result<String> {
    let mut body = String::new();
    hosts(&mut body, files);
    let place = |bench: &str| BENCHES.iter().position(|(name, _)| *name == bench);
    let mut by_bench: BTreeMap<(usize, &str), Vec<&File>> = BTreeMap::new();
    for file in files {
        let report = &file.report;
        let key = (
            place(&report.bench).unwrap_or(BENCHES.len()),
            report.bench.as_str(),
        );
        by_bench.entry(key).or_default().push(file);
    }
    for ((place, bench), files) in by_bench {
        let title = BENCHES.get(place).map_or(bench, |(_, title)| title);
        section(&mut body, bench, title, &files)?;
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Portolan: measured</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>Portolan: measured</h1>\n{body}</body>\n</html>\n"
    ))
}

fn hosts(body: &mut String, files: &[File]) {
    let mut seen: Vec<&Machine> = Vec::new();
    for file in files {
        let host = &file.report.host;
        if seen.contains(&host) {
            continue;
        }
        seen.push(host);
        let lab = host
            .lab
            .as_ref()
            .map(|name| format!(", lab {name}"))
            .unwrap_or_default();
        let _ = writeln!(
            body,
            "<p>{}: {}, {} cores, {} GB, {}, Linux {}{}; Portolan {}</p>",
            escaped(&host.name),
            escaped(&host.cpu),
            host.cores,
            host.memory_mb / 1000,
            escaped(&host.arch),
            escaped(&host.kernel),
            escaped(&lab),
            escaped(&host.portolan)
        );
    }
    body.push_str(
        "<p class=\"faint\">Bars are medians over slices, the thin line spans the quartiles. \
         A ratio is the median over slices of two figures of the same slice.</p>\n",
    );
}

fn section(body: &mut String, bench: &str, title: &str, files: &[&File]) -> Result<()> {
    let _ = writeln!(
        body,
        "<h2 id=\"{0}\">{1}</h2>",
        escaped(bench),
        escaped(title)
    );
    let rows: Vec<&Row> = files.iter().flat_map(|file| &file.report.rows).collect();
    let ratios: Vec<&Ratio> = files.iter().flat_map(|file| &file.report.ratios).collect();
    for (caption, picture) in pictures(&rows)? {
        let _ = writeln!(
            body,
            "<figure>{picture}<figcaption>{}</figcaption></figure>",
            escaped(&caption)
        );
    }
    if !ratios.is_empty() {
        claims(body, &ratios);
    }
    figures(body, &rows);
    for file in files.iter().filter(|file| file.report.steal >= 0.01) {
        let _ = writeln!(
            body,
            "<p class=\"faint\">{}: {:.1} % of the CPU time was stolen by the hypervisor</p>",
            escaped(&file.name),
            100.0 * file.report.steal
        );
    }
    Ok(())
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
fn pictures(rows: &[&Row]) -> Result<Vec<(String, String)>> {
    let mut pictures = Vec::new();
    let mut plots: Vec<_> = rows.iter().map(|row| plotted(row)).collect();
    plots.sort_unstable();
    plots.dedup();
    for plot in plots {
        let (metric, receiver, buffer) = &plot;
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
            (
                Messages,
                "messages",
                "messages sent before any is read",
                Legend::Right,
            ),
            (Entries, "entries", "how many wait", Legend::Left),
            (Size, "bytes", "size", Legend::Left),
        ];
        let over = |(dimension, unit, by, legend)| {
            let lines = lines_over(&of_metric, |row| row.dimensions.number(dimension))?;
            Some((lines, unit, by, legend))
        };
        if let Some((lines, unit, by, legend)) = axes.into_iter().find_map(over) {
            let picture = plot::lines(unit, metric, &lines, legend)?;
            pictures.push((format!("{metric} by {by}{of_plot}"), picture));
        } else {
            let bars: Vec<(String, [f64; 3])> = of_metric
                .iter()
                .map(|row| (label(row), [row.q1, row.p50, row.q3]))
                .collect();
            let caption = match of_metric[0].dimensions.number(Size) {
                Some(size) => format!("{metric}, {size} bytes{of_plot}"),
                None => format!("{metric}{of_plot}"),
            };
            pictures.push((caption, plot::bars(&bars)?));
        }
    }
    let histograms: Vec<Line> = rows
        .iter()
        .filter_map(|row| {
            let buckets = row.histogram.as_ref()?;
            let points = buckets
                .iter()
                .map(|(us, count)| (*us, *count as f64))
                .collect();
            let one_line = if row.metric == "line_latency_us" {
                ", one line"
            } else {
                ""
            };
            Some((format!("{}{one_line}", row.system), points))
        })
        .collect();
    if !histograms.is_empty() {
        let picture = plot::lines("us one way", "messages", &histograms, Legend::Right)?;
        pictures.push(("how many messages took how long".to_owned(), picture));
    }
    Ok(pictures)
}

/// A line for each system and pattern over what `x` gives; `None` if no line
/// would have two points.
fn lines_over(rows: &[&Row], x: impl Fn(&Row) -> Option<f64>) -> Option<Vec<Line>> {
    // In the order of the rows: ourselves first.
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some(x) = x(row) else { continue };
        let name = series(row);
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push((x, row.p50)),
            None => lines.push((name, vec![(x, row.p50)])),
        }
    }
    for (_, points) in &mut lines {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let long = lines.iter().any(|(_, points)| {
        let first = points.first().map(|p| p.0);
        points.iter().any(|p| Some(p.0) != first)
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

fn claims(body: &mut String, ratios: &[&Ratio]) {
    body.push_str(
        "<h3>Ratios</h3>\n<div class=\"wide\"><table>\n<tr><th>of</th><th>over</th><th>figure</th>\
         <th></th><th class=\"n\">median</th><th class=\"n\">quartiles</th><th></th></tr>\n",
    );
    for ratio in ratios {
        let conditions = [
            &[Size, Loss, Ranks][..],
            &HOW,
            &[Bursts, Harm, Beside, Entries],
        ];
        let when = ratio.dimensions.phrases(&conditions.concat());
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{:.3}</td>\
             <td class=\"n\">{:.3} to {:.3}</td><td>{}</td></tr>",
            escaped(&ratio.system),
            escaped(&ratio.over),
            escaped(&ratio.metric),
            escaped(&when),
            ratio.median,
            ratio.q1,
            ratio.q3,
            if ratio.noisy { "noisy" } else { "" }
        );
    }
    body.push_str("</table></div>\n");
}

fn figures(body: &mut String, rows: &[&Row]) {
    body.push_str(
        "<details><summary>All figures</summary>\n<div class=\"wide\"><table>\n<tr><th>system</th>\
         <th>figure</th><th></th><th class=\"n\">median</th><th class=\"n\">quartiles</th>\
         <th class=\"n\">p99</th><th class=\"n\">p99.9</th><th class=\"n\">p99.99</th>\
         <th class=\"n\">n</th><th>method</th></tr>\n",
    );
    let some = |value: Option<f64>| value.map(number).unwrap_or_default();
    for row in rows {
        let conditions = [Size, Loss, Ranks, Messages, Entries, Pattern];
        let when = row.dimensions.phrases(&conditions);
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{} to {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"faint\">{}</td></tr>",
            escaped(&label(row)),
            escaped(&row.metric),
            escaped(&when),
            number(row.p50),
            number(row.q1),
            number(row.q3),
            some(row.tail.p99),
            some(row.tail.p99_9),
            some(row.tail.p99_99),
            row.n,
            escaped(&row.method)
        );
    }
    body.push_str("</table></div></details>\n");
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
        let html = html(&[report(&one, "[]")]).unwrap();
        assert!(
            html.contains("latency_us, 8 bytes") && html.contains("<svg"),
            "{html}"
        );
        let two = format!("[{},{}]", row("ours", 8, 0.1), row("ours", 64, 0.2));
        let html = super::html(&[report(&two, "[]")]).unwrap();
        assert!(html.contains("latency_us by size"), "{html}");
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
        let html = html(&[report(&format!("[{rows}]"), ratio)]).unwrap();
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
        let html = html(&[report(&format!("[{}]", rows.join(",")), "[]")]).unwrap();
        let plots: Vec<&str> = html.split("<figure>").skip(1).collect();
        assert_eq!(plots.len(), 2, "{html}");
        for (plot, receiver) in plots.iter().zip(["early", "late"]) {
            let caption = format!("latency_us by size, {receiver} receiver, pushed buffer 4096");
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
        let html = html(&[report(&format!("[{}]", row("<b>", 8, 1.0)), ratios)]).unwrap();
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
