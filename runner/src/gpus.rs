//! GPUs as NVIDIA's management library reports them. A machine without that library counts as one without GPUs.

use std::ffi::OsStr;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The library as drivers install it. The name without a version exists only with the development files.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The usage of one GPU at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuSample {
    /// The number of the GPU.
    pub index: u32,
    /// The unique name of the GPU.
    pub uuid: String,
    /// Share of the last sample period in which the GPU was busy.
    pub busy_percent: u32,
    pub memory_bytes: i64,
    pub total_memory_bytes: i64,
}

/// The usage of several GPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuLoad {
    /// The sum of all GPUs; 100 for one GPU that is always busy.
    pub percent: u32,
    pub memory_bytes: i64,
    pub total_memory_bytes: i64,
    pub count: u32,
}

impl GpuSample {
    /// Returns whether a device name means this GPU. The name is a number or the beginning of the unique name.
    fn matches_name(&self, name: &str) -> bool {
        name.parse() == Ok(self.index) || name.starts_with("GPU-") && self.uuid.starts_with(name)
    }
}

/// Returns the usage of these devices together; none if no sample matches.
pub fn load(devices: &[String], samples: &[GpuSample]) -> Option<GpuLoad> {
    let is_one = |sample: &&GpuSample| devices.iter().any(|name| sample.matches_name(name));
    let sum = samples.iter().filter(is_one).fold(GpuLoad::default(), |sum, sample| GpuLoad {
        percent: sum.percent + sample.busy_percent,
        memory_bytes: sum.memory_bytes + sample.memory_bytes,
        total_memory_bytes: sum.total_memory_bytes + sample.total_memory_bytes,
        count: sum.count + 1,
    });
    (sum.count > 0).then_some(sum)
}

pub struct Gpus {
    library: Nvml,
}

impl Gpus {
    /// Opens the library; none where it is missing or finds no driver.
    pub fn open() -> Option<Self> {
        // A statically linked program has no loader for shared libraries.
        if cfg!(target_feature = "crt-static") {
            return None;
        }
        let library = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().ok()?;
        Some(Self { library })
    }

    /// Returns the number of GPUs.
    pub fn count(&self) -> u32 {
        self.library.device_count().unwrap_or_default()
    }

    /// Returns the usage of all GPUs. A GPU that does not answer is left out.
    pub fn samples(&self) -> Vec<GpuSample> {
        (0..self.count()).filter_map(|index| self.sample(index).ok()).collect()
    }

    fn sample(&self, index: u32) -> Result<GpuSample, NvmlError> {
        let device = self.library.device_by_index(index)?;
        let memory = device.memory_info()?;
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(GpuSample {
            index,
            uuid: device.uuid()?,
            busy_percent: device.utilization_rates()?.gpu,
            memory_bytes: bytes(memory.used),
            total_memory_bytes: bytes(memory.total),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(index: u32, busy_percent: u32) -> GpuSample {
        GpuSample { index, uuid: format!("GPU-{index}a7f"), busy_percent, memory_bytes: 3, total_memory_bytes: 8 }
    }

    #[test]
    fn the_load_of_devices_is_their_sum() {
        let samples = [sample(0, 90), sample(1, 20), sample(11, 7)];
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            load(&names, &samples)
        };
        let sum = |percent, count| {
            let (memory_bytes, total_memory_bytes) = (3 * i64::from(count), 8 * i64::from(count));
            Some(GpuLoad { percent, memory_bytes, total_memory_bytes, count })
        };
        assert_eq!(of(&["0", "1"]), sum(110, 2));
        assert_eq!(of(&["1"]), sum(20, 1));
        assert_eq!(of(&["GPU-1"]), sum(27, 2), "a beginning names all that begin so");
        assert_eq!(of(&["GPU-0a"]), sum(90, 1));
        assert_eq!(of(&["1", "GPU-1a7f"]), sum(20, 1), "a device counts once");
        assert_eq!(of(&["7", "MIG-1", ""]), None);
        assert_eq!(of(&[]), None);
    }

    // J21. Every value of a load is the sum over its devices.
    #[test]
    fn each_number_of_a_load_is_summed_by_itself() {
        let gpu = |index, busy_percent, memory_bytes, total_memory_bytes| GpuSample {
            index,
            uuid: format!("GPU-{index}"),
            busy_percent,
            memory_bytes,
            total_memory_bytes,
        };
        let samples = [gpu(0, 1, 20, 300), gpu(1, 4, 50, 600), gpu(2, 7_000, 7_000, 7_000)];
        let devices = ["0".to_owned(), "GPU-1".to_owned()];
        let expected = GpuLoad { percent: 5, memory_bytes: 70, total_memory_bytes: 900, count: 2 };
        assert_eq!(load(&devices, &samples), Some(expected));
    }
}
