//! Short forms of ids. Ids begin with the time of their creation, so many ids begin alike. The end of an id is random.

/// Letters in a short id. So few letters are easy to type, and they are enough: two ids of a store have the same short
/// form only once in a million years of use.
const SHORT_LETTERS: usize = 8;
/// Length of an id that Allstop generates, in ASCII letters.
const ULID_LETTERS: usize = 26;

/// Alias for the most recently active session.
pub(crate) const LAST: &str = "last";

/// The short form of an id: its end, which is unique. An id that Allstop did not generate is not shortened, because any
/// part of it may be common to other ids.
pub(crate) fn short(id: &str) -> &str {
    let is_ulid = id.len() == ULID_LETTERS && id.bytes().all(|b| b.is_ascii_alphanumeric());
    let end = id.len().saturating_sub(SHORT_LETTERS);
    id.get(end..).filter(|_| is_ulid).unwrap_or(id)
}

/// True if `given` is the id or a part of the id. Case is ignored.
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
