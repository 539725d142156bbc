//! Which of several values is the better one, by figures that are times.

use std::ops::RangeInclusive;

use portolan_bench::Quartiles;

/// A change is worth it that takes so much less time.
const GAIN: f64 = 0.95;
/// And with which nothing takes longer than by so much.
const LOSS: f64 = 1.05;
/// Candidates as good as the best but for so much: the first of them is taken.
const TIE: f64 = 1.02;

/// Times of one candidate: of each figure, a value a round. All are of the
/// same rounds.
pub type Times = Vec<Vec<f64>>;

/// Of each figure: median over rounds of this time over the other's.
pub fn ratios(of: &Times, over: &Times) -> Vec<f64> {
    let figure = |(a, b): (&Vec<f64>, &Vec<f64>)| {
        let of_rounds = a.iter().zip(b).map(|(a, b)| a / b);
        let finite: Vec<f64> = of_rounds.filter(|it| it.is_finite()).collect();
        Quartiles::of(&finite).map_or(1.0, |it| it.median)
    };
    of.iter().zip(over).map(figure).collect()
}

/// The geometric mean.
pub fn mean(ratios: &[f64]) -> f64 {
    let logs: f64 = ratios.iter().map(|it| it.ln()).sum();
    (logs / ratios.len().max(1) as f64).exp()
}

/// The candidate to change to, with its times over those of the first, which is
/// in use; `None`: it stays.
pub fn best(candidates: &[Times]) -> Option<(usize, f64)> {
    let (first, others) = candidates.split_first()?;
    let good: Vec<(usize, f64)> = (1..)
        .zip(others)
        .filter_map(|(place, times)| {
            let ratios = ratios(times, first);
            let worst = ratios.iter().copied().fold(0.0, f64::max);
            let mean = mean(&ratios);
            (mean <= GAIN && worst <= LOSS).then_some((place, mean))
        })
        .collect();
    let least = good.iter().map(|(_, mean)| *mean).reduce(f64::min)?;
    good.into_iter().find(|(_, mean)| *mean <= least * TIE)
}

/// Up to which size the one is better than the other, by its times over the
/// other's of each size, in order: how many sizes, one of `counts`.
pub fn up_to(ratios: &[f64], counts: RangeInclusive<usize>) -> usize {
    let sum = |count: usize| ratios[..count].iter().map(|it| it.ln()).sum::<f64>();
    let sums = counts.map(|count| (count, sum(count)));
    let least = sums.min_by(|a, b| a.1.total_cmp(&b.1));
    least.map_or(0, |(count, _)| count)
}

/// The times of the sizes that change over, as they are, if the first `count`
/// and no longer the first `now` sizes have it; `None`: it is not worth it.
pub fn worth(ratios: &[f64], now: usize, count: usize) -> Option<f64> {
    let sum = |count: usize| ratios[..count].iter().map(|it| it.ln()).sum::<f64>();
    let changed = count.abs_diff(now);
    let gain = ((sum(count) - sum(now)) / changed.max(1) as f64).exp();
    (changed > 0 && gain <= GAIN).then_some(gain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(figures: &[[f64; 3]]) -> Times {
        figures.iter().map(|rounds| rounds.to_vec()).collect()
    }

    #[test]
    fn a_change_is_to_gain_and_to_cost_nothing() {
        let now = times(&[[10.0, 20.0, 30.0], [1.0, 1.0, 1.0]]);
        let half = times(&[[5.0, 10.0, 900.0], [1.0, 1.0, 1.0]]);
        assert_eq!(ratios(&half, &now), [0.5, 1.0]);
        let slight = times(&[[9.8, 19.6, 29.4], [1.0, 1.0, 1.0]]);
        let mixed = times(&[[1.0, 2.0, 3.0], [1.2, 1.2, 1.2]]);
        let found = best(&[now.clone(), slight.clone(), mixed.clone(), half.clone()]);
        assert_eq!(found.unwrap().0, 3);
        assert!((found.unwrap().1 - 0.5_f64.sqrt()).abs() < 1e-9);
        assert_eq!(best(&[now.clone(), slight, mixed]), None);
        // As good as another: the first of them.
        let alike = times(&[[5.05, 10.1, 15.1], [1.0, 1.0, 1.0]]);
        assert_eq!(best(&[now, alike, half]).unwrap().0, 1);
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn what_gains_up_to_a_size_is_used_up_to_it() {
        let ratios = [0.8, 0.8, 0.9, 1.5, 2.0];
        assert_eq!((up_to(&ratios, 0..=5), up_to(&ratios, 0..=2)), (3, 2));
        assert_eq!(up_to(&ratios, 4..=5), 4);
        // One size that is slower by chance does not end it.
        assert_eq!(up_to(&[0.8, 1.02, 0.8, 0.8, 2.0], 0..=5), 4);
        assert_eq!(up_to(&[1.5, 1.2], 0..=2), 0);
        // What changes over counts, either way, and nothing else.
        let gain = |now, count| worth(&ratios, now, count).unwrap();
        assert!((gain(0, 2) - 0.8).abs() < 1e-9);
        assert!((gain(5, 3) - 3.0_f64.sqrt().recip()).abs() < 1e-9);
        assert_eq!(worth(&ratios, 3, 3), None);
        assert_eq!(worth(&[0.8, 0.99, 0.98], 1, 3), None);
    }
}
