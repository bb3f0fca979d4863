//! Functions that measure one sample.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Wall-clock time of the work, and the return value of the work. The caller drops the value, so the time of the drop
/// is not in the sample.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let done = black_box(work());
    (began.elapsed(), done)
}

/// Average time of `times` repetitions, including the time to drop the return values.
pub fn each_of<T>(times: u32, mut work: impl FnMut() -> T) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        drop(black_box(work()));
    }
    began.elapsed() / times
}

/// Processor time that all threads of this process used during the work, and the return value of the work.
pub fn cpu_timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let began = cpu_now();
    let done = black_box(work());
    (cpu_now().saturating_sub(began), done)
}

fn cpu_now() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_counts_work() {
        let sum = || (0..5_000_000_u64).fold(0, |sum, n| black_box(sum ^ n));
        let (took, _) = cpu_timed(sum);
        assert!(took > Duration::from_micros(100), "{took:?}");
    }
}
