//! Memory and CPU time as `sstat` and `sacct` print them.

/// Returns the bytes of an amount of memory such as `1024K`, `2.5G` or `512M`. Without a letter, the unit is bytes.
pub fn memory_bytes(text: &str) -> Option<i64> {
    let text = text.trim();
    let (number, exponent) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 1),
        (at, 'M' | 'm') => (&text[..at], 2),
        (at, 'G' | 'g') => (&text[..at], 3),
        (at, 'T' | 't') => (&text[..at], 4),
        (at, 'P' | 'p') => (&text[..at], 5),
        _ => (text, 0),
    };
    let number: f64 =
        Some(number).filter(|number| number.chars().all(|c| c.is_ascii_digit() || c == '.'))?.parse().ok()?;
    let bytes = number * 1024f64.powi(exponent);
    // Casting saturates, so an absurd amount must be refused before.
    (bytes < i64::MAX as f64).then_some(bytes as i64)
}

/// Returns the seconds of a CPU time such as `00:01:30`, `1-02:03:04`, `01:30` or `00:00:01.250`.
pub fn cpu_seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (whole(days)?, clock),
        None => (0, text),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let (hours, minutes, seconds) = match parts.as_slice() {
        [hours, minutes, seconds] => (whole(hours)?, whole(minutes)?, *seconds),
        [minutes, seconds] => (0, whole(minutes)?, *seconds),
        _ => return None,
    };
    let seconds: f64 = Some(seconds).filter(|text| text.starts_with(|c: char| c.is_ascii_digit()))?.parse().ok()?;
    let minutes = days.checked_mul(24)?.checked_add(hours)?.checked_mul(60)?.checked_add(minutes)?;
    Some(minutes as f64 * 60.0 + seconds)
}

fn whole(text: &str) -> Option<u64> {
    Some(text).filter(|text| text.chars().all(|c| c.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // S18
    #[test]
    fn memory_as_slurm_prints_it() {
        let cases = [
            ("1024K", Some(1 << 20)),
            ("2.5G", Some(5 << 29)),
            ("512M", Some(512 << 20)),
            ("2048576K", Some(2_048_576 << 10)),
            ("1T", Some(1 << 40)),
            ("3P", Some(3 << 50)),
            ("7", Some(7)),
            ("0", Some(0)),
            (" 16M ", Some(16 << 20)),
            ("", None),
            ("K", None),
            ("-1K", None),
            ("1e9", None),
            ("nan", None),
            ("12X", None),
            ("99999999999999999999P", None),
            ("3é", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(memory_bytes(text), bytes, "{text:?}");
        }
    }

    // S18
    #[test]
    fn every_letter_of_memory_in_both_cases() {
        for (letter, bits) in [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)] {
            assert_eq!(memory_bytes(&format!("3{letter}")), Some(3 << bits), "{letter}");
            assert_eq!(memory_bytes(&format!("3{}", letter.to_lowercase())), Some(3 << bits), "{letter}");
        }
        let odd = [
            ("0K", Some(0)),
            ("0.5K", Some(512)),
            ("1.0009K", Some(1_024)),
            (".5K", Some(512)),
            ("5.", Some(5)),
            ("8191P", Some(8_191 << 50)),
            ("8192P", None),
            (".", None),
            ("1.2.3K", None),
            ("1 K", None),
            ("+1K", None),
            ("1KB", None),
            ("16?", None),
        ];
        for (text, bytes) in odd {
            assert_eq!(memory_bytes(text), bytes, "{text:?}");
        }
    }

    // S18
    #[test]
    fn every_part_of_a_cpu_time_counts() {
        let cases = [
            ("2-03:04:05", Some(183_845.0)),
            ("2-04:05", Some(173_045.0)),
            ("03:04:05.5", Some(11_045.5)),
            ("100:00:00", Some(360_000.0)),
            ("59:59", Some(3_599.0)),
            ("00:00", Some(0.0)),
            (" 00:07 ", Some(7.0)),
            ("1-2", None),
            ("x-00:00:01", None),
            ("00:-1:00", None),
            ("00:00:-1", None),
            ("1.5:00:00", None),
            ("00:1.5:00", None),
            (":", None),
            ("::", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(cpu_seconds(text), seconds, "{text:?}");
        }
    }

    // S18
    #[test]
    fn cpu_time_as_slurm_prints_it() {
        let cases = [
            ("00:01:30", Some(90.0)),
            ("1-02:03:04", Some(93_784.0)),
            ("01:30", Some(90.0)),
            ("00:00:01.250", Some(1.25)),
            ("00:00:00", Some(0.0)),
            ("", None),
            ("90", None),
            ("1:2:3:4", None),
            ("a:b:c", None),
            ("-1:00:00", None),
            ("00:00:inf", None),
            ("99999999999999999999-00:00:00", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(cpu_seconds(text), seconds, "{text:?}");
        }
    }
}
