//! Plots as SVG. Text and axes are drawn in the page's own text colour, so
//! that they show on a light and on a dark page.

use std::ops::RangeInclusive;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Rectangle, Text};
use plotters::series::DashedLineSeries;
use plotters::style::{Color, IntoFont, RGBColor, TextStyle};
use portolan_hosts::failure::{Failure, Result};

/// Stands for the page's text colour while a plot is drawn.
const TEXT: RGBColor = RGBColor(1, 2, 3);
const TEXT_NAME: &str = "#010203";
/// Readable on white and on nearly black (Okabe and Ito's without black and
/// yellow, and as many more).
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
    RGBColor(214, 39, 40),
    RGBColor(23, 190, 207),
];
/// Dashes and gaps of a system's lines in one plot, pixels. The first is solid.
const DASHES: [(u32, u32); 5] = [(10_000, 0), (9, 4), (3, 4), (16, 6), (1, 5)];
const SIZE: (u32, u32) = (760, 360);
/// Bars that differ by more than this factor have a logarithmic axis.
const LINEAR_MAX: f64 = 20.0;

/// A named series of points.
pub struct PlotLine {
    pub name: String,
    /// The place of its system's colour.
    pub colour: usize,
    /// Its place among the plot's lines of this system.
    pub variant: usize,
    pub points: Vec<(f64, f64)>,
}

/// A named figure.
pub struct Bar {
    pub name: String,
    /// The place of its system's colour.
    pub colour: usize,
    /// With the median in the middle.
    pub quartiles: [f64; 3],
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("drawing a plot: {error}"))
}

fn colour(place: usize) -> RGBColor {
    COLOURS[place % COLOURS.len()]
}

fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// The picture that `draw` makes.
fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<()>,
) -> Result<String> {
    let mut picture = String::new();
    {
        let area = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        draw(&area)?;
        area.present().map_err(failed)?;
    }
    Ok(picture.replace(TEXT_NAME, "currentColor"))
}

/// What a line may have, on either axis. No measure has more, and an axis of some hundred
/// decades would never be drawn.
const DRAWN: RangeInclusive<f64> = 1e-30..=1e30;

/// Lines over logarithmic axes. Points outside of [`DRAWN`] are left out.
pub fn lines(x: &str, y: &str, lines: &[PlotLine]) -> Result<String> {
    let is_drawn = |(x, y): &(f64, f64)| DRAWN.contains(x) && DRAWN.contains(y);
    let points = || {
        let all = lines.iter().flat_map(|line| &line.points);
        all.copied().filter(is_drawn)
    };
    let (xs, ys) = (range(points().map(|p| p.0)), range(points().map(|p| p.1)));
    // Whole decades, so that there are numbers at the axis.
    let decade = |value: f64, round: fn(f64) -> f64| 10_f64.powf(round(value.log10()));
    let ys = decade(ys.0, f64::floor)..decade(ys.1, f64::ceil);
    // The legend has the upper corner that falling or rising lines leave free.
    let falls = |line: &PlotLine| match &line.points[..] {
        [(_, first), .., (_, last)] => (first / last).ln().signum(),
        _ => 0.0,
    };
    let legend = match lines.iter().map(falls).sum::<f64>() > 0.0 {
        true => SeriesLabelPosition::UpperRight,
        false => SeriesLabelPosition::UpperLeft,
    };
    svg(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d((xs.0..xs.1).log_scale(), ys.log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .axis_style(TEXT)
            .label_style(text(13))
            .axis_desc_style(text(14))
            .bold_line_style(TEXT.mix(0.15))
            .light_line_style(TEXT.mix(0.0))
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()
            .map_err(failed)?;
        for line in lines {
            let style = colour(line.colour).stroke_width(2);
            let (dash, gap) = DASHES[line.variant % DASHES.len()];
            let kept = line.points.iter().copied();
            let kept: Vec<(f64, f64)> = kept.filter(is_drawn).collect();
            let dots = kept.iter().map(|at| Circle::new(*at, 3, style));
            chart.draw_series(dots).map_err(failed)?;
            chart
                .draw_series(DashedLineSeries::new(kept, dash, gap, style))
                .map_err(failed)?
                .label(&line.name)
                .legend(move |(x, y)| {
                    DashedPathElement::new([(x, y), (x + 24, y)], dash, gap, style)
                });
        }
        chart
            .configure_series_labels()
            .position(legend)
            .label_font(text(13))
            .draw()
            .map_err(failed)
    })
}

/// The smallest and largest value, with some room; 1 to 10 where there is none.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, 0.0_f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if high > 0.0 {
        (low / 1.3, high * 1.3)
    } else {
        (1.0, 10.0)
    }
}

/// A bar for each value, with quartiles; what the caption says of the axis too.
pub fn bars(bars: &[Bar]) -> Result<(&'static str, String)> {
    const HEIGHT: u32 = 30;
    const VALUE: i32 = 90;
    /// Pixels of a letter of a name, and below the bars for the axis.
    const LETTER: usize = 8;
    const AXIS: u32 = 20;
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max();
    let left = (longest.unwrap_or(0) * LETTER).clamp(100, 400) as i32;
    let width = f64::from(SIZE.0 as i32 - left - VALUE);
    // A file may say anything, also quartiles in no order.
    let most = bars.iter().flat_map(|bar| bar.quartiles);
    let most = most.filter(|it| it.is_finite());
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let medians = bars.iter().map(|bar| bar.quartiles[1]);
    let medians = medians.filter(|it| *it > 0.0);
    let least = medians.fold(most, f64::min);
    let logarithmic = most > LINEAR_MAX * least;
    // A power of ten that leaves a piece of the smallest bar.
    let first = (least / 1.3).log10().floor();
    let x = |value: f64| {
        let share = match logarithmic {
            true => (value.log10() - first) / (most.log10() - first),
            false => value / most,
        };
        left + (width * share.clamp(0.0, 1.0)) as i32
    };
    let bottom = (HEIGHT * bars.len() as u32 + 4) as i32;
    let height = bottom as u32 + if logarithmic { AXIS } else { 6 };
    let picture = svg((SIZE.0, height), |area| {
        let last = if logarithmic { most.log10() } else { f64::MIN };
        for power in first as i32..=last.floor() as i32 {
            let value = 10_f64.powi(power);
            let line = [(x(value), 0), (x(value), bottom)];
            area.draw(&PathElement::new(line, TEXT.mix(0.15)))
                .map_err(failed)?;
            let said = Text::new(number(value), (x(value), bottom + 4), text(12));
            area.draw(&said).map_err(failed)?;
        }
        for (place, bar) in bars.iter().enumerate() {
            let top = place as i32 * HEIGHT as i32 + 6;
            let (middle, bottom) = (top + 10, top + 20);
            let [q1, median, q3] = bar.quartiles;
            let filled = colour(bar.colour).filled();
            area.draw(&Rectangle::new([(left, top), (x(median), bottom)], filled))
                .map_err(failed)?;
            let spread = [(x(q1), middle), (x(q3), middle)];
            area.draw(&PathElement::new(spread, TEXT.stroke_width(1)))
                .map_err(failed)?;
            area.draw(&Text::new(bar.name.clone(), (0, top + 3), text(14)))
                .map_err(failed)?;
            let value = Text::new(number(median), (x(q3.max(median)) + 8, top + 3), text(14));
            area.draw(&value).map_err(failed)?;
        }
        Ok(())
    })?;
    Ok((
        if logarithmic {
            "; logarithmic axis"
        } else {
            ""
        },
        picture,
    ))
}

/// A value to three digits, with k, M and G.
pub fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_take_the_pages_text_colour() {
        let line = |variant, points: &[(f64, f64)]| PlotLine {
            name: "a".to_owned(),
            colour: 0,
            variant,
            points: points.to_vec(),
        };
        let some = line(0, &[(8.0, 0.1), (1e6, 33.0), (0.0, 5.0)]);
        for picture in [
            lines("bytes", "us", &[some]).unwrap(),
            lines("bytes", "us", &[line(1, &[])]).unwrap(),
            lines(
                "bytes",
                "us",
                &[line(2, &[(8.0, 1e308), (8.0, 1e30), (1.0, 1e-30)])],
            )
            .unwrap(),
            bars(&[bar(2.0)]).unwrap().1,
        ] {
            assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
            assert!(picture.contains("currentColor") && !picture.contains(TEXT_NAME));
        }
    }

    fn bar(median: f64) -> Bar {
        Bar {
            name: "b".to_owned(),
            colour: 0,
            quartiles: [0.9 * median, median, 1.1 * median],
        }
    }

    #[test]
    fn bars_that_differ_much_have_a_logarithmic_axis() {
        let scale = |medians: &[f64]| {
            let all: Vec<Bar> = medians.iter().map(|it| bar(*it)).collect();
            bars(&all).unwrap()
        };
        assert_eq!(scale(&[1.0, 18.0]).0, "");
        assert_eq!(scale(&[0.0, 1.0]).0, "");
        for strange in [1e308, f64::MAX, -1.0, f64::MIN_POSITIVE] {
            scale(&[1.0, strange]);
            let quartiles = [strange, 1.0, -strange];
            let strange = [
                Bar {
                    quartiles,
                    ..bar(1.0)
                },
                bar(2.0),
            ];
            bars(&strange).unwrap();
        }
        let (said, picture) = scale(&[1.0, 0.0, 2_500.0]);
        assert_eq!(said, "; logarithmic axis");
        for power in ["0.1", "1", "10", "100", "1000"] {
            assert!(
                picture.contains(&format!("\n{power}\n")),
                "{power}: {picture}"
            );
        }
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0714, 1.5, 12.34, 100.0, 23_400_000.0, 54_321.0].map(number);
        assert_eq!(texts, ["0.071", "1.5", "12.3", "100", "23.4M", "54.3k"]);
    }
}
