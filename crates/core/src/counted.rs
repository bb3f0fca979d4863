//! Numbers in messages.

/// A count with its noun, such as `1 step` or `1,024 tokens`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", grouped(count)),
    }
}

/// A number with a comma before each group of three digits, such as `1,024`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A size in the largest unit that divides it, such as `1 GiB` or `1,025 bytes`.
pub fn byte_size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS
        .iter()
        .find(|(bits, _)| bytes > 0 && bytes.is_multiple_of(1 << bits));
    match unit {
        Some((bits, unit)) => format!("{} {unit}", grouped(bytes >> bits)),
        None => counted(bytes, "byte", "bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_agree_with_their_noun() {
        let steps = |count| counted(count, "step", "steps");
        assert_eq!(steps(0), "0 steps");
        assert_eq!(steps(1), "1 step");
        assert_eq!(steps(2), "2 steps");
        assert_eq!(counted(1_234_567, "reply", "replies"), "1,234,567 replies");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn size_has_the_largest_unit_that_divides_it() {
        assert_eq!(byte_size(0), "0 bytes");
        assert_eq!(byte_size(1), "1 byte");
        assert_eq!(byte_size(1_025), "1,025 bytes");
        assert_eq!(byte_size(1_536), "1,536 bytes");
        assert_eq!(byte_size(64 << 10), "64 KiB");
        assert_eq!(byte_size(1 << 30), "1 GiB");
        assert_eq!(byte_size(1_500 << 40), "1,500 TiB");
    }
}
