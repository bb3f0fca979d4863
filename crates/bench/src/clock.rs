//! Clocks of samples.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The time that the work took, with what it returned: drop that outside the sample.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let done = black_box(work());
    (began.elapsed(), done)
}

/// The time of one of `times` repetitions. Dropping what each returned is in it.
pub fn each_of<T>(times: u32, mut work: impl FnMut() -> T) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        drop(black_box(work()));
    }
    began.elapsed() / times
}

/// The processor time that all threads of this process used during the work, with what it returned.
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
