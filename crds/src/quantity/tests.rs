#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

#[test]
fn memory_is_counted_in_powers_of_1024() {
    let cases = [
        ("0", 0),
        ("1024", 1_024),
        ("1k", 1_024),
        ("1m", 1 << 20),
        ("512MB", 512 << 20),
        ("200g", 200 << 30),
        ("200G", 200 << 30),
        ("200Gi", 200 << 30),
        ("200GiB", 200 << 30),
        ("1.5G", 3 << 29),
        ("0.5k", 512),
        ("2t", 2 << 40),
        ("1p", 1 << 50),
        (" 4 g ", 4 << 30),
        ("100b", 100),
    ];
    for (text, bytes) in cases {
        assert_eq!(parse_memory(text), Ok(bytes), "{text}");
    }
}

#[test]
fn other_texts_are_no_memory() {
    for text in ["", "g", "-1g", "1x", "1gg", "1.g", ".5g", "1.2.3g", "1i", "bi", "1e3", "4g 5g", "１g"] {
        assert_eq!(parse_memory(text), Err(QuantityError::Memory { text: text.to_owned() }), "{text}");
    }
    for text in ["9223372036854775808", "8192p", "99999999999999999999999999999999g"] {
        assert_eq!(parse_memory(text), Err(QuantityError::TooLarge { text: text.to_owned() }), "{text}");
    }
}

#[test]
fn durations_in_all_their_spellings() {
    let cases = [
        ("PT4H", 14_400),
        ("pt4h", 14_400),
        ("P1DT2H", 93_600),
        ("P0DT1M", 60),
        ("P2W", 1_209_600),
        ("P1M", 2_630_016),
        ("P1Y", 31_557_600),
        ("PT1.5H", 5_400),
        ("PT0.5S", 1),
        ("PT0S", 0),
        ("4h30m", 16_200),
        ("4h 30m", 16_200),
        ("1d2h3m4s", 93_784),
        ("90s", 90),
        ("1w", 604_800),
        ("1.5h", 5_400),
        ("1-02:00:00", 93_600),
        ("1-02", 93_600),
        ("1-02:30", 95_400),
        ("01:00:00", 3_600),
        ("100:00:00", 360_000),
        ("30:00", 1_800),
    ];
    for (text, seconds) in cases {
        assert_eq!(parse_duration(text), Ok(seconds), "{text}");
        assert_eq!(parse_walltime(text), Ok(seconds), "{text}");
    }
}

#[test]
fn other_texts_are_no_duration() {
    let texts =
        ["", "P", "PT", "P1H", "PT1D", "1m2h", "1h1h", "4x", "h", "-5m", "1:2:3:4", ":", "1-", "-", "1::2", "4hours"];
    for text in texts {
        assert_eq!(parse_duration(text), Err(QuantityError::Duration { text: text.to_owned() }), "{text}");
    }
    assert_eq!(
        parse_duration("99999999999999999999d"),
        Err(QuantityError::TooLarge { text: "99999999999999999999d".to_owned() })
    );
}

#[test]
fn a_bare_number_is_minutes_for_slurm_and_refused_elsewhere() {
    let error = parse_duration("30").unwrap_err();
    assert_eq!(error.to_string(), "'30' is a duration without a unit");
    assert_eq!(error.hint(), "write 30s, 30m or 30h");
    assert_eq!(parse_walltime("30"), Ok(1_800));
    assert_eq!(
        parse_walltime("9999999999999999999"),
        Err(QuantityError::TooLarge { text: "9999999999999999999".to_owned() })
    );
}

#[test]
fn formats_are_short() {
    assert_eq!(format_memory(200 << 30), "200g");
    assert_eq!(format_memory(1_500), "1500");
    assert_eq!(format_memory(0), "0");
    assert_eq!(format_duration(16_200), "4h30m");
    assert_eq!(format_duration(93_784), "1d2h3m4s");
    assert_eq!(format_duration(0), "0s");
    assert_eq!(format_duration(-5), "0s");
}

proptest! {
    #[test]
    fn memory_reads_back(bytes in 0..i64::MAX) {
        prop_assert_eq!(parse_memory(&format_memory(bytes)), Ok(bytes));
    }

    #[test]
    fn durations_read_back(seconds in 0..i64::MAX) {
        prop_assert_eq!(parse_duration(&format_duration(seconds)), Ok(seconds));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,24}") {
        let _ = parse_memory(&text);
        let _ = parse_duration(&text);
        let _ = parse_walltime(&text);
    }

    #[test]
    fn no_number_panics(text in "[P]?[0-9.]{0,30}[-:a-zT]?[0-9.]{0,30}[a-z:]?") {
        let _ = parse_memory(&text);
        let _ = parse_duration(&text);
        let _ = parse_walltime(&text);
    }
}
