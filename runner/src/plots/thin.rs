//! Thins curves: both ends of a curve stay, and of each stretch the point with the largest value.

/// Thins a curve to at most `most` points.
pub fn downsample<P: Copy, K: Ord>(curve: &mut Vec<P>, most: usize, amount: impl Fn(&P) -> K) {
    let most = most.max(3);
    if curve.len() <= most {
        return;
    }
    let inner = &curve[1..curve.len() - 1];
    let stretches = most - 2;
    let mut kept = vec![curve[0]];
    for number in 0..stretches {
        let (from, to) = (number * inner.len() / stretches, (number + 1) * inner.len() / stretches);
        kept.extend(inner[from..to].iter().max_by_key(|point| amount(point)));
    }
    kept.extend(curve.last());
    *curve = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_and_the_ends_stay() {
        let mut curve: Vec<(i32, i32)> = (0..1_000).map(|at| (at, if at == 777 { 99 } else { at % 7 })).collect();
        downsample(&mut curve, 50, |point| point.1);
        assert_eq!(curve.len(), 50);
        assert_eq!((curve[0].0, curve[49].0), (0, 999));
        assert!(curve.contains(&(777, 99)) && curve.is_sorted_by_key(|point| point.0));
    }

    #[test]
    fn a_short_curve_stays_as_it_is() {
        for length in 0..=3 {
            let mut curve: Vec<i32> = (0..length).collect();
            downsample(&mut curve, 0, |point| *point);
            assert_eq!(curve, (0..length).collect::<Vec<_>>());
        }
    }
}
