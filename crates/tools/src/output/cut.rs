//! Cuts text without splitting characters.

/// Removes the bytes of an incomplete character at the end.
pub fn without_cut_end(bytes: &[u8]) -> &[u8] {
    // The first byte of a character is at most three bytes before its last byte.
    let start = (1..=3.min(bytes.len())).find(|back| bytes[bytes.len() - back] & 0xC0 != 0x80);
    match start {
        Some(back) if char_len(bytes[bytes.len() - back]) > back => &bytes[..bytes.len() - back],
        _ => bytes,
    }
}

/// Removes the bytes of an incomplete character at the start.
pub fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xC0 == 0x80)
        .count();
    &bytes[cut..]
}

/// Length of a character in bytes, computed from its first byte.
fn char_len(first: u8) -> usize {
    match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    }
}
