//! Start-up jitter: runners that Slurm starts at the same time call the server one after another.

use std::time::Duration;

/// Returns the time over which the starts of this many runners are spread.
pub fn window(runners: u64) -> Duration {
    match runners {
        0 | 1 => Duration::ZERO,
        2..=10 => Duration::from_secs(runners),
        // From 10 s for ten to 60 s for a hundred.
        11..=100 => Duration::from_millis(10_000 + (runners - 10) * 50_000 / 90),
        _ => Duration::from_secs(60),
    }
}

/// Returns the delay of one runner. It only depends on the name, such as `host/job/node/pid`.
pub fn delay(runners: u64, name: &str) -> Duration {
    let window = window(runners).as_millis() as u64;
    // FNV-1a with a finalizer: names that differ in one digit get very different values.
    let mut hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    Duration::from_millis(if window == 0 { 0 } else { hash % window })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_with_the_number_of_runners() {
        let cases =
            [(0, 0), (1, 0), (2, 2_000), (10, 10_000), (11, 10_555), (55, 35_000), (100, 60_000), (101, 60_000)];
        for (runners, milliseconds) in cases {
            assert_eq!(window(runners).as_millis(), milliseconds, "{runners} runners");
        }
    }

    /// A runner that restarts under the same name waits as long as before, also after an update.
    #[test]
    fn a_delay_depends_on_the_name_and_the_window_only() {
        let cases = [(3, 3_000), (9, 9_000), (12, 11_111), (99, 59_444), (10_000, 60_000)];
        for (runners, milliseconds) in cases {
            assert_eq!(window(runners).as_millis(), milliseconds, "{runners} runners");
        }
        let pinned = [(2, "n1/7/0/99", 510), (50, "n1/7/0/99", 8_952), (500, "n2/7/1/99", 28_566), (500, "", 52_947)];
        for (runners, name, milliseconds) in pinned {
            assert_eq!(delay(runners, name).as_millis(), milliseconds, "{runners} {name}");
        }
        assert_eq!(delay(0, "n1/7/0/99"), Duration::ZERO);
    }

    #[test]
    fn delays_lie_in_the_window_and_are_spread() {
        assert_eq!(delay(1, "n1/7/0/99"), Duration::ZERO);
        let mut quarters = [0; 4];
        for node in 0..400 {
            let delay = delay(400, &format!("n{node}/7/{node}/99"));
            assert!(delay < Duration::from_secs(60));
            quarters[delay.as_secs() as usize / 15] += 1;
        }
        assert!(quarters.iter().all(|count| (60..=140).contains(count)), "{quarters:?}");
        assert_eq!(delay(50, "a"), delay(50, "a"));
    }
}
