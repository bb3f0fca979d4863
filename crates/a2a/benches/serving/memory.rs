//! Memory of this process.

/// Resident memory in MB; `None` if the system does not report it.
pub(crate) fn resident_mb() -> Option<f64> {
    status_mb("VmRSS:")
}

/// Maximum of the resident memory in MB since the last [`reset_peak`].
pub(crate) fn peak_mb() -> Option<f64> {
    status_mb("VmHWM:")
}

/// Sets the peak to the current memory. Without the permission, the peak is that of the whole process.
pub(crate) fn reset_peak() {
    drop(std::fs::write("/proc/self/clear_refs", "5"));
}

fn status_mb(name: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kb: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kb / 1_024.0)
}
