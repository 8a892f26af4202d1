#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

#[test]
fn a_count_has_its_noun_in_the_right_number() {
    assert_eq!([count(0, "GPU"), count(1, "GPU"), count(2_usize, "GPU")], ["0 GPUs", "1 GPU", "2 GPUs"]);
}

#[test]
fn bytes_are_shown_in_the_largest_unit() {
    let cases = [
        (-5, "0 B"),
        (0, "0 B"),
        (1_023, "1023 B"),
        (1 << 10, "1 KiB"),
        (60 << 20, "60 MiB"),
        ((60 << 20) + (300 << 10), "60.3 MiB"),
        (634_632 << 10, "619.8 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 40, "5 TiB"),
        (i64::MAX, "8192 PiB"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(format_bytes(bytes), expected);
    }
}

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

// S18
#[test]
fn every_unit_of_memory_has_its_power() {
    let letters = [("", 0), ("k", 10), ("m", 20), ("g", 30), ("t", 40), ("p", 50)];
    for (letter, bits) in letters {
        for suffix in ["", "b"] {
            for unit in [format!("{letter}{suffix}"), format!("{letter}{suffix}").to_uppercase()] {
                assert_eq!(parse_memory(&format!("3{unit}")), Ok(3 << bits), "3{unit}");
            }
        }
        if !letter.is_empty() {
            assert_eq!(parse_memory(&format!("3{letter}i")), Ok(3 << bits), "3{letter}i");
            assert_eq!(parse_memory(&format!("3{letter}iB")), Ok(3 << bits), "3{letter}iB");
        }
    }
}

#[test]
fn fractions_of_memory_are_rounded_up() {
    let cases = [
        ("0.1k", 103),
        ("0.001k", 2),
        ("1.0009765625k", 1_025),
        ("1.5", 2),
        ("0.0000000001k", 0),
        ("0.000000001k", 1),
        ("2.5g", 5 << 29),
    ];
    for (text, bytes) in cases {
        assert_eq!(parse_memory(text), Ok(bytes), "{text}");
    }
}

#[test]
fn the_largest_quantities() {
    let too_large = |text: &str| Err(QuantityError::TooLarge { text: text.to_owned() });
    assert_eq!(parse_memory("9223372036854775807"), Ok(i64::MAX));
    assert_eq!(parse_memory("8191p"), Ok(8_191 << 50));
    assert_eq!(parse_memory("9223372036854775808"), too_large("9223372036854775808"));
    assert_eq!(parse_memory("99999999999999999999"), too_large("99999999999999999999"), "20 digits");
    assert_eq!(parse_memory("999999999999999999999p"), too_large("999999999999999999999p"), "21 digits");
    assert_eq!(parse_duration("9223372036854775807s"), Ok(i64::MAX));
    assert_eq!(parse_duration("9223372036854775808s"), too_large("9223372036854775808s"));
    assert_eq!(parse_walltime("153722867280912930"), Ok(153_722_867_280_912_930 * 60));
    assert_eq!(parse_walltime("153722867280912931"), too_large("153722867280912931"));
    assert_eq!(parse_duration("100000000000000000:00"), Ok(6_000_000_000_000_000_000), "18 digits");
    let nineteen = "1000000000000000000:00";
    assert_eq!(parse_duration(nineteen), Err(QuantityError::Duration { text: nineteen.to_owned() }), "19 digits");
}

#[test]
fn every_unit_of_a_duration_has_its_seconds() {
    let cases = [
        ("3y", None),
        ("3w", Some(1_814_400)),
        ("3d", Some(259_200)),
        ("3h", Some(10_800)),
        ("3m", Some(180)),
        ("3s", Some(3)),
        ("3W2D", Some(1_987_200)),
        ("P3Y", Some(94_672_800)),
        ("P3M", Some(7_890_048)),
        ("P3W", Some(1_814_400)),
        ("P3D", Some(259_200)),
        ("PT3H", Some(10_800)),
        ("PT3M", Some(180)),
        ("PT3S", Some(3)),
        ("P1Y2M3W4DT5H6M7S", Some(31_557_600 + 2 * 2_630_016 + 3 * 604_800 + 4 * 86_400 + 5 * 3_600 + 6 * 60 + 7)),
        ("1:02", Some(62)),
        ("1:02:03", Some(3_723)),
        ("4-1:02:03", Some(4 * 86_400 + 3_723)),
        ("4-1:02", Some(4 * 86_400 + 3_720)),
        ("4-1", Some(4 * 86_400 + 3_600)),
        ("1.01m", Some(61)),
        ("0.1s", Some(1)),
        ("", None),
        (" ", None),
        ("3mo", None),
        ("P3", None),
        ("3", None),
    ];
    for (text, seconds) in cases {
        assert_eq!(parse_duration(text).ok(), seconds, "{text}");
    }
}

#[test]
fn every_mistake_has_a_hint() {
    let cases = [
        (parse_memory("x"), "'x' is not a memory size", "write a number and a unit: 512m, 200g, 1.5t"),
        (parse_duration("x"), "'x' is not a duration", "write PT4H, 4h30m or 1-02:00:00"),
        (parse_duration(" 7 "), "' 7 ' is a duration without a unit", "write 7s, 7m or 7h"),
        (parse_memory("8192p"), "'8192p' is too large", "write a smaller one"),
    ];
    for (parsed, message, hint) in cases {
        let error = parsed.unwrap_err();
        assert_eq!((error.to_string().as_str(), error.hint().as_str()), (message, hint));
    }
}

#[test]
fn formats_take_the_largest_unit_without_a_fraction() {
    let memory = [
        (1_023, "1023"),
        (1_024, "1k"),
        (1_025, "1025"),
        (1_536 << 10, "1536k"),
        (1 << 20, "1m"),
        (1_536 << 20, "1536m"),
        (1 << 30, "1g"),
        (1 << 40, "1t"),
        (1 << 50, "1p"),
        (3 << 50, "3p"),
        (1_025 << 40, "1025t"),
    ];
    for (bytes, text) in memory {
        assert_eq!(format_memory(bytes), text);
    }
    let durations = [
        (1, "1s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3_600, "1h"),
        (86_399, "23h59m59s"),
        (86_400, "1d"),
        (864_061, "10d1m1s"),
    ];
    for (seconds, text) in durations {
        assert_eq!(format_duration(seconds), text);
    }
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
