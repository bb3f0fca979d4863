//! Memory of this process.

/// Resident memory in MB; `None` if the system does not report it.
pub(crate) fn resident_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kb: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kb / 1_024.0)
}
