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
}
