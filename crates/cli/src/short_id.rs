//! Short forms of ids. Ids begin with the time, so their beginnings are alike; their ends are random.

/// Letters in a short id. This number of letters is small enough to type. It is also large enough: two ids of a store
/// have the same short form only once in a million years of use.
const SHORT_LETTERS: usize = 8;
/// Length of an id that Allstop generates, in ASCII letters.
const ULID_LETTERS: usize = 26;

/// Alias for the most recently active session.
pub(crate) const LAST: &str = "last";

/// The end of an id, which identifies it. Ids from other generators stay whole, because it is unknown which part of
/// them is unique.
pub(crate) fn short(id: &str) -> &str {
    let is_ulid = id.len() == ULID_LETTERS && id.bytes().all(|b| b.is_ascii_alphanumeric());
    let end = id.len().saturating_sub(SHORT_LETTERS);
    id.get(end..).filter(|_| is_ulid).unwrap_or(id)
}

/// True if `given` is the id or a part of it. Case is ignored.
pub(crate) fn is_meant(id: &str, given: &str) -> bool {
    let (id, given) = (id.to_ascii_uppercase(), given.to_ascii_uppercase());
    !given.is_empty() && id.contains(&given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_id_is_its_short_form() {
        let id = "01M82ZDK405NZBRRXREGE6SJCE";
        assert_eq!(short(id), "EGE6SJCE");
        for given in ["01m82", "EGE6SJCE", "sjce", "405N", id] {
            assert!(is_meant(id, given), "{given}");
        }
        assert!(!is_meant(id, "") && !is_meant(id, "405M"));
        assert_eq!(short("alpha"), "alpha");
    }
}
