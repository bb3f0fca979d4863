//! Durations as people read them.

use std::time::Duration;

use crate::counted::counted;

/// Formats a duration in its two largest units, such as `1 min 05 s`. Seconds below a minute have one decimal, and a
/// duration of a day or more has only days.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        _ => counted(seconds / 86_400, "day", "days"),
    }
}

/// Formats milliseconds; from one second on, uses a larger unit.
pub fn milliseconds(ms: f64) -> String {
    if ms < 1_000.0 {
        return format!("{ms:.1} ms");
    }
    duration(Duration::from_secs_f64((ms / 1_000.0).min(1e15)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(milliseconds(0.4), "0.4 ms");
        assert_eq!(milliseconds(1_234.0), "1.2 s");
        assert_eq!(milliseconds(61_000.0), "1 min 01 s");
        assert_eq!(milliseconds(86_400_000.0), "1 day");
        assert_eq!(milliseconds(f64::MAX), "11,574,074,074 days");
    }
}
