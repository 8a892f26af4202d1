//! Gives memory back after something large: applying 100,000 jobs needs several times of what they need afterwards.

/// More new jobs than this in one group leave enough behind to be worth the few milliseconds.
pub const MANY_JOBS: usize = 10_000;

/// Gives memory that nobody uses back to the operating system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe call for it")]
pub fn give_back() {
    // SAFETY: glibc allows it at any time and from any thread; what is in use is not touched.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators give memory back by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}
