//! The arithmetic of a claim: medians and quartiles over slices, ratios of
//! paired slices, and the line through message times.

/// (upper - lower quartile) / median above which a ratio says nothing.
pub const NOISY: f64 = 0.20;

/// Slices that a claim needs.
pub const SLICES_MIN: usize = 21;

/// Median and quartiles of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// Lower quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Upper quartile.
    pub q3: f64,
    /// How many values there were.
    pub count: usize,
}

impl Quartiles {
    /// Of `values`, which need no order; `None` when there are none. Between
    /// two ranks the value is interpolated (Hyndman and Fan's type 7).
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            q1: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            q3: quantile(&sorted, 0.75),
            count: sorted.len(),
        })
    }

    /// Too wide to be a claim, either way.
    #[must_use]
    pub fn noisy(&self) -> bool {
        let spread = (self.q3 - self.q1) / self.median.abs();
        // So is a median of zero, or none at all.
        spread.is_nan() || spread > NOISY
    }
}

/// The value below which the share `q` of `sorted` lies, interpolated.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// A figure in the making: a value of each slice, where it has one, and how
/// many operations there were in all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// By slice.
    pub values: Vec<Option<f64>>,
    /// Operations of all slices.
    pub n: u64,
}

impl Series {
    /// Another slice, of `n` operations.
    pub fn keep(&mut self, value: f64, n: u64) {
        self.values.push(Some(value));
        self.n += n;
    }

    /// The values that there are.
    #[must_use]
    pub fn seen(&self) -> Vec<f64> {
        self.values.iter().flatten().copied().collect()
    }

    /// Over all slices.
    #[must_use]
    pub fn quartiles(&self) -> Option<Quartiles> {
        Quartiles::of(&self.seen())
    }

    /// The same slices in another unit.
    #[must_use]
    pub fn map(&self, value: impl Fn(f64) -> f64) -> Self {
        Self {
            values: self.values.iter().map(|it| it.map(&value)).collect(),
            n: self.n,
        }
    }

    /// Quartiles of the ratios of each slice, where both have a value and the
    /// divisor is not zero; `None` when there is no such slice.
    #[must_use]
    pub fn over(&self, divisor: &Self) -> Option<Quartiles> {
        let pairs = self.values.iter().zip(&divisor.values);
        let ratios: Vec<f64> = pairs
            .filter_map(|(a, b)| Some((*a)? / (*b)?))
            .filter(|ratio| ratio.is_finite())
            .collect();
        Quartiles::of(&ratios)
    }

    /// Slice by slice the value that `choose` takes of two.
    #[must_use]
    pub fn best(&self, other: &Self, choose: fn(f64, f64) -> f64) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        let of_slice = |(a, b): (&Option<f64>, &Option<f64>)| match (*a, *b) {
            (Some(a), Some(b)) => Some(choose(a, b)),
            (a, b) => a.or(b),
        };
        Self {
            values: pairs.map(of_slice).collect(),
            n: self.n + other.n,
        }
    }
}

impl<T: IntoIterator<Item = f64>> From<T> for Series {
    /// An operation a slice.
    fn from(values: T) -> Self {
        let values: Vec<Option<f64>> = values.into_iter().map(Some).collect();
        Self {
            n: values.len() as u64,
            values,
        }
    }
}

/// A line through message times: `time = start + size / bandwidth`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearFit {
    /// Time of an empty message, microseconds.
    pub start_us: f64,
    /// Bandwidth for ever longer messages, MB/s (bytes per microsecond).
    pub mb_s: f64,
}

impl LinearFit {
    /// Through `(bytes, microseconds)` by least squares of the relative error,
    /// so that short messages weigh as much as long ones. `None` with fewer
    /// than two sizes or where time does not grow with size.
    #[must_use]
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(x, y) in points.iter().filter(|(_, y)| *y > 0.0) {
            let weight = 1.0 / (y * y);
            w += weight;
            wx += weight * x;
            wy += weight * y;
            wxx += weight * x * x;
            wxy += weight * x * y;
        }
        let spread = w * wxx - wx * wx;
        let slope = (w * wxy - wx * wy) / spread;
        (spread > 0.0 && slope > 0.0).then(|| Self {
            start_us: (wy - slope * wx) / w,
            mb_s: 1.0 / slope,
        })
    }
}

/// The size at which `(bytes, MB/s)`, in order of size, first reaches half of
/// its best bandwidth, interpolated; the first size when even that is beyond.
#[must_use]
pub fn half_power(curve: &[(f64, f64)]) -> Option<f64> {
    let half = curve.iter().map(|point| point.1).reduce(f64::max)? / 2.0;
    let reached = curve.iter().position(|point| point.1 >= half)?;
    let (x1, y1) = curve[reached];
    if reached == 0 {
        return Some(x1);
    }
    let (x0, y0) = curve[reached - 1];
    Some(x0 + (x1 - x0) * (half - y0) / (y1 - y0))
}

/// The value below which so many of 10,000 lie.
#[must_use]
pub fn below(sorted: &[f64], of_10_000: usize) -> Option<f64> {
    let place = (sorted.len() * of_10_000).div_ceil(10_000);
    sorted.get(place.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate_and_ignore_order() {
        let q = Quartiles::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((q.q1, q.median, q.q3, q.count), (1.75, 2.5, 3.25, 4));
        let q = Quartiles::of(&[5.0, 1.0, 9.0]).unwrap();
        assert_eq!((q.q1, q.median, q.q3), (3.0, 5.0, 7.0));
        let q = Quartiles::of(&[7.0]).unwrap();
        assert_eq!((q.q1, q.median, q.q3, q.count), (7.0, 7.0, 7.0, 1));
        assert_eq!(Quartiles::of(&[]), None);
    }

    #[test]
    fn noisy_begins_above_a_fifth_of_the_median() {
        let of = |q1, median, q3| Quartiles {
            q1,
            median,
            q3,
            count: 21,
        };
        assert!(!of(90.0, 100.0, 110.0).noisy());
        assert!(of(0.9, 1.0, 1.11).noisy());

        assert!(of(0.0, 0.0, 0.0).noisy());
        assert!(of(f64::NAN, f64::NAN, f64::NAN).noisy());
    }

    #[test]
    fn pairs_divide_slice_by_slice() {
        // The machine slows down threefold half way: the pairs do not care.
        let slower = |k: usize| if k < 10 { 2.0 } else { 6.0 };
        let ours = Series::from(std::array::from_fn::<f64, 20, _>(slower));
        let q = ours.over(&ours.map(|value| value / 2.0)).unwrap();
        assert_eq!((q.q1, q.median, q.q3, q.count), (2.0, 2.0, 2.0, 20));
    }

    #[test]
    fn pairs_need_both_sides() {
        let of = |values: &[Option<f64>]| Series {
            values: values.to_vec(),
            n: 0,
        };
        let ours = of(&[Some(1.0), None, Some(3.0), Some(4.0)]);
        let theirs = of(&[Some(2.0), Some(2.0), None, Some(0.0)]);
        let q = ours.over(&theirs).unwrap();
        assert_eq!((q.median, q.count), (0.5, 1));
        assert_eq!(of(&[None]).over(&of(&[Some(1.0)])), None);
        assert_eq!(of(&[]).over(&of(&[])), None);
        // The best of a slice is that of who has one.
        let best = ours.best(&theirs, f64::max).values;
        assert_eq!(best, [2.0, 2.0, 3.0, 4.0].map(Some));
    }

    #[test]
    fn the_line_is_found_again() {
        let points: Vec<_> = [8.0, 64.0, 4096.0, 1e6]
            .iter()
            .map(|&s| (s, 2.5 + s / 800.0))
            .collect();
        let line = LinearFit::fit(&points).unwrap();
        assert!(
            (line.start_us - 2.5).abs() < 1e-6 && (line.mb_s - 800.0).abs() < 1e-3,
            "{line:?}"
        );
        assert_eq!(LinearFit::fit(&points[..1]), None);
        assert_eq!(LinearFit::fit(&[(8.0, 2.0), (16.0, 1.0)]), None);
    }

    #[test]
    fn half_power_lies_between_the_sizes_around_it() {
        let curve = [(8.0, 10.0), (100.0, 40.0), (200.0, 60.0), (400.0, 100.0)];
        assert_eq!(half_power(&curve), Some(150.0));
        assert_eq!(half_power(&[(8.0, 90.0), (16.0, 100.0)]), Some(8.0));
        assert_eq!(half_power(&[]), None);
    }
}
