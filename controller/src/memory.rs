//! Returns memory to the operating system after a peak: applying 100,000 jobs needs several times the memory of storing them.

/// Number of changed jobs in one group above which trimming is worth its few milliseconds.
pub const MANY_JOBS: usize = 10_000;

/// Returns unused memory to the operating system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe call for it")]
pub fn release_unused() {
    // SAFETY: glibc allows the call at any time and from any thread; it does not touch memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Does nothing: other allocators return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn release_unused() {}
