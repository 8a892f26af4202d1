//! The peak and the average of a series of values.

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::state) struct Spread {
    peak: f64,
    sum: f64,
    count: u32,
}

impl Spread {
    pub fn add(&mut self, value: f64) {
        self.peak = self.peak.max(value);
        self.sum += value;
        self.count += 1;
    }

    pub fn peak(&self) -> Option<f64> {
        (self.count > 0).then_some(self.peak)
    }

    pub fn average(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a double is exact up to 8 PiB")]
pub(in crate::state) fn as_float(bytes: i64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, reason = "amounts of memory fit")]
pub(in crate::state) fn as_whole(bytes: f64) -> i64 {
    bytes.round() as i64
}
