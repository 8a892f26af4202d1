//! How many jobs ran at once, from a journal that each of them wrote to at its start and at its end.

/// The most at once: `+N` stands for a start that takes N, `-N` for its end.
pub fn most_at_once(lines: &[String]) -> i64 {
    let mut now = 0;
    let mut most = 0;
    for line in lines {
        now += line.parse::<i64>().unwrap_or_else(|_| panic!("`{line}` is no start or end"));
        most = most.max(now);
    }
    assert_eq!(now, 0, "somebody started and did not end: {lines:?}");
    most
}

#[cfg(test)]
mod tests {
    use super::most_at_once;

    #[test]
    fn the_highest_sum_counts() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(most_at_once(&lines("+1 -1 +1 +2 -1 -2")), 3);
        assert_eq!(most_at_once(&lines("+2 -2 +2 -2")), 2);
    }
}
