//! Plots as SVG. Text and axes are drawn in the page's own text colour, so
//! that they show on a light and on a dark page.

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::series::LineSeries;
use plotters::style::{Color, IntoFont, RGBColor, TextStyle};
use portolan_hosts::failure::{Failure, Result};

/// Stands for the page's text colour while a plot is drawn.
const TEXT: RGBColor = RGBColor(1, 2, 3);
const TEXT_NAME: &str = "#010203";
/// Readable on white and on nearly black (Okabe and Ito's, without black and yellow).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];
const SIZE: (u32, u32) = (760, 360);

/// The upper corner that the lines leave free.
#[derive(Clone, Copy)]
pub enum Legend {
    Left,
    Right,
}

/// A named series of points.
pub type Line = (String, Vec<(f64, f64)>);

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

/// Lines over logarithmic axes. Points that are not above 0 are left out.
pub fn lines(x: &str, y: &str, lines: &[Line], legend: Legend) -> Result<String> {
    let points = || {
        let all = lines.iter().flat_map(|(_, points)| points);
        all.copied().filter(|(x, y)| *x > 0.0 && *y > 0.0)
    };
    let (xs, ys) = (range(points().map(|p| p.0)), range(points().map(|p| p.1)));
    svg(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d((xs.0..xs.1).log_scale(), (ys.0..ys.1).log_scale())
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
        for (place, (name, points)) in lines.iter().enumerate() {
            let kept = points.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0);
            chart
                .draw_series(LineSeries::new(kept, colour(place).stroke_width(2)).point_size(3))
                .map_err(failed)?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour(place).stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(match legend {
                Legend::Left => SeriesLabelPosition::UpperLeft,
                Legend::Right => SeriesLabelPosition::UpperRight,
            })
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

/// A bar for each value, with quartiles.
pub fn bars(bars: &[(String, [f64; 3])]) -> Result<String> {
    const HEIGHT: u32 = 30;
    const NAME: i32 = 150;
    const VALUE: i32 = 90;
    let most = bars
        .iter()
        .map(|(_, [_, _, q3])| *q3)
        .fold(f64::MIN_POSITIVE, f64::max);
    let width = SIZE.0 as i32 - NAME - VALUE;
    let x = |value: f64| NAME + (f64::from(width) * value / most) as i32;
    svg((SIZE.0, HEIGHT * bars.len() as u32 + 10), |area| {
        for (place, (name, [q1, median, q3])) in bars.iter().enumerate() {
            let top = place as i32 * HEIGHT as i32 + 6;
            let (middle, bottom) = (top + 10, top + 20);
            let bar = Rectangle::new([(NAME, top), (x(*median), bottom)], colour(place).filled());
            area.draw(&bar).map_err(failed)?;
            let spread = [(x(*q1), middle), (x(*q3), middle)];
            area.draw(&PathElement::new(spread, TEXT.stroke_width(1)))
                .map_err(failed)?;
            area.draw(&Text::new(name.clone(), (0, top + 3), text(14)))
                .map_err(failed)?;
            let value = Text::new(number(*median), (x(*q3) + 8, top + 3), text(14));
            area.draw(&value).map_err(failed)?;
        }
        Ok(())
    })
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
        let line = ("a".to_owned(), vec![(8.0, 0.1), (1e6, 33.0), (0.0, 5.0)]);
        for picture in [
            lines("bytes", "us", &[line], Legend::Left).unwrap(),
            lines(
                "bytes",
                "us",
                &[("empty".to_owned(), Vec::new())],
                Legend::Right,
            )
            .unwrap(),
            bars(&[("b".to_owned(), [1.0, 2.0, 3.0])]).unwrap(),
        ] {
            assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
            assert!(picture.contains("currentColor") && !picture.contains(TEXT_NAME));
        }
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0714, 1.5, 12.34, 100.0, 23_400_000.0, 54_321.0].map(number);
        assert_eq!(texts, ["0.071", "1.5", "12.3", "100", "23.4M", "54.3k"]);
    }
}
