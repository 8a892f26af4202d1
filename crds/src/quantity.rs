//!
//! Parses and prints amounts of memory and durations.
//!
//! Units of memory are powers of 1024, as on HPC systems: `200g`, `200Gi` and `200GB` are the same. A duration needs
//! a unit, because a bare number is minutes for Slurm and seconds elsewhere. Only a walltime, which is Slurm's own,
//! accepts bare minutes.

use thiserror::Error;

/// The reason why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// Not a memory size.
    #[error("'{text}' is not a memory size")]
    Memory {
        /// The text as written.
        text: String,
    },
    /// The text is not a duration.
    #[error("'{text}' is not a duration")]
    Duration {
        /// The text as written.
        text: String,
    },
    /// A duration without a unit.
    #[error("'{text}' is a duration without a unit")]
    NoUnit {
        /// The text as written.
        text: String,
    },
    /// The number of bytes or seconds exceeds `i64`.
    #[error("'{text}' is too large")]
    TooLarge {
        /// The text as written.
        text: String,
    },
}

impl QuantityError {
    /// Returns a hint with a valid text.
    pub fn hint(&self) -> String {
        match self {
            Self::Memory { .. } => "write a number and a unit: 512m, 200g, 1.5t".to_owned(),
            Self::Duration { .. } => "write PT4H, 4h30m or 1-02:00:00".to_owned(),
            Self::NoUnit { text } => format!("write {text}s, {text}m or {text}h", text = text.trim()),
            Self::TooLarge { .. } => "write a smaller one".to_owned(),
        }
    }
}

const MINUTE: i128 = 60;
const HOUR: i128 = 3_600;
const DAY: i128 = 86_400;
const WEEK: i128 = 7 * DAY;
/// The seconds of 30.44 days, the mean length of a month.
const MONTH: i128 = 2_630_016;
/// The seconds of 365.25 days, the mean length of a year.
const YEAR: i128 = 31_557_600;

/// Bytes of `200g`, `200Gi`, `512MB`, `1.5G`, `1m` or a plain number.
pub fn parse_memory(text: &str) -> Result<i64, QuantityError> {
    let malformed = || QuantityError::Memory { text: text.to_owned() };
    let (number, unit) = split_unit(text.trim());
    let power = memory_power(unit).ok_or_else(malformed)?;
    let decimal = Decimal::parse(number).ok_or_else(malformed)?;
    let bytes = decimal.times(1_i128 << (10 * power)).ok_or_else(|| too_large(text))?;
    i64::try_from(bytes).map_err(|_| too_large(text))
}

/// Seconds of `PT4H`, `P1DT2H`, `4h30m`, `1-02:00:00`, `02:00:00` or `30:00` (minutes and seconds).
pub fn parse_duration(text: &str) -> Result<i64, QuantityError> {
    let trimmed = text.trim();
    if !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::NoUnit { text: text.to_owned() });
    }
    let seconds = if trimmed.starts_with(['P', 'p']) {
        iso_seconds(trimmed)
    } else if trimmed.contains([':', '-']) {
        clock_seconds(trimmed)
    } else {
        unit_seconds(trimmed)
    };
    let seconds = seconds.ok_or_else(|| QuantityError::Duration { text: text.to_owned() })?;
    i64::try_from(seconds).map_err(|_| too_large(text))
}

/// Seconds of a Slurm time limit: every duration, and a plain number of minutes.
pub fn parse_walltime(text: &str) -> Result<i64, QuantityError> {
    match parse_duration(text) {
        Err(QuantityError::NoUnit { .. }) => {
            let minutes: i64 = text.trim().parse().map_err(|_| too_large(text))?;
            minutes.checked_mul(60).ok_or_else(|| too_large(text))
        }
        other => other,
    }
}

/// Returns a text that `parse_memory` reads: with the largest unit that leaves no fraction.
pub fn format_memory(bytes: i64) -> String {
    for (power, unit) in [(5, "p"), (4, "t"), (3, "g"), (2, "m"), (1, "k")] {
        let size = 1_i64 << (10 * power);
        if bytes >= size && bytes % size == 0 {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

/// Returns a number with its noun: `1 job`, `2 jobs`.
pub fn count(number: impl TryInto<i64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(i64::MAX);
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Returns an amount of memory for readers, e.g. `60 MiB` or `1.5 GiB`: the largest unit, rounded to one decimal.
pub fn format_bytes(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let bytes = bytes.max(0);
    let mut power = (bytes.max(1).ilog2() / 10).min(5);
    let tenths_of = |power: u32| {
        let unit = 1_i128 << (10 * power);
        (i128::from(bytes) * 10 + unit / 2) / unit
    };
    // 1023.97 MiB is 1 GiB when rounded.
    if tenths_of(power) >= 10_240 && power < 5 {
        power += 1;
    }
    let (tenths, unit) = (tenths_of(power), UNITS[power as usize]);
    if tenths % 10 == 0 { format!("{} {unit}", tenths / 10) } else { format!("{}.{} {unit}", tenths / 10, tenths % 10) }
}

/// Returns a text that `parse_duration` reads, e.g. `1d2h30m`. Durations are never negative.
pub fn format_duration(seconds: i64) -> String {
    let mut rest = seconds.max(0);
    let mut text = String::new();
    for (size, unit) in [(86_400, 'd'), (3_600, 'h'), (60, 'm'), (1, 's')] {
        let count = rest / size;
        rest %= size;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn too_large(text: &str) -> QuantityError {
    QuantityError::TooLarge { text: text.to_owned() }
}

/// Splits a text into the leading number and the rest.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

fn memory_power(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_lowercase();
    let letters = unit.strip_suffix('b').unwrap_or(&unit);
    match letters.strip_suffix('i').unwrap_or(letters) {
        "" if letters.is_empty() => Some(0),
        "k" => Some(1),
        "m" => Some(2),
        "g" => Some(3),
        "t" => Some(4),
        "p" => Some(5),
        _ => None,
    }
}

/// A number as written, without a float in between.
struct Decimal {
    digits: i128,
    scale: i128,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let malformed = whole.is_empty() || (text.contains('.') && fraction.is_empty());
        if malformed || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        // Beyond these lengths nothing changes but the risk of an overflow.
        let fraction = fraction.get(..9).unwrap_or(fraction);
        let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        let whole: i128 = if whole.len() > 20 { i128::from(i64::MAX) } else { whole.parse().ok()? };
        let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        Some(Self { digits: whole * scale + part, scale })
    }

    /// Multiplies and rounds up, so that a fraction never becomes zero.
    fn times(&self, factor: i128) -> Option<i128> {
        let product = self.digits.checked_mul(factor)?;
        Some((product + self.scale - 1) / self.scale)
    }
}

fn iso_seconds(text: &str) -> Option<i128> {
    let upper = text.to_ascii_uppercase();
    let body = upper.strip_prefix('P')?;
    let (date, time) = match body.split_once('T') {
        Some((date, time)) if !time.is_empty() => (date, time),
        Some(_) => return None,
        None => (body, ""),
    };
    if body.is_empty() {
        return None;
    }
    let days = components(date, &[('Y', YEAR), ('M', MONTH), ('W', WEEK), ('D', DAY)])?;
    days.checked_add(components(time, &[('H', HOUR), ('M', MINUTE), ('S', 1)])?)
}

fn unit_seconds(text: &str) -> Option<i128> {
    if text.is_empty() {
        return None;
    }
    let compact: String = text.to_ascii_lowercase().split_whitespace().collect();
    components(&compact, &[('w', WEEK), ('d', DAY), ('h', HOUR), ('m', MINUTE), ('s', 1)])
}

/// Numbers, each with a unit, in the order of the units, none twice.
fn components(text: &str, units: &[(char, i128)]) -> Option<i128> {
    let mut rest = text;
    let mut units = units.iter();
    let mut total = 0_i128;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number = Decimal::parse(rest.get(..end)?)?;
        let unit = rest.get(end..)?.chars().next()?;
        let (_, seconds) = units.find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.times(*seconds)?)?;
        rest = rest.get(end + unit.len_utf8()..)?;
    }
    Some(total)
}

/// Parses Slurm's `[D-]HH:MM:SS`, `MM:SS`, `D-HH` and `D-HH:MM`.
fn clock_seconds(text: &str) -> Option<i128> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(whole(days)?), clock),
        None => (None, text),
    };
    let parts = clock.split(':').map(whole).collect::<Option<Vec<i128>>>()?;
    let seconds = match (days.is_some(), parts.as_slice()) {
        (_, [hours, minutes, seconds]) => hours * HOUR + minutes * MINUTE + seconds,
        (true, [hours, minutes]) => hours * HOUR + minutes * MINUTE,
        (true, [hours]) => hours * HOUR,
        (false, [minutes, seconds]) => minutes * MINUTE + seconds,
        _ => return None,
    };
    Some(days.unwrap_or(0) * DAY + seconds)
}

fn whole(text: &str) -> Option<i128> {
    let digits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
