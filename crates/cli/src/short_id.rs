//! Short forms of ids. Ids begin with the time, so their beginnings are alike; their ends are random.

/// Letters of an end: enough that two ids of a store have the same one once in a million years of use, and few
/// enough to be typed.
const SHORT_LETTERS: usize = 8;
/// Letters of an id that Allstop has made itself, in ASCII.
const ULID_LETTERS: usize = 26;

/// Word for the session that was active last.
pub(crate) const LAST: &str = "last";

/// The end of an id, which is as good as all of it. An id that somebody else has made stays whole: nobody knows which
/// part of it tells it apart.
pub(crate) fn short(id: &str) -> &str {
    let is_ulid = id.len() == ULID_LETTERS && id.bytes().all(|b| b.is_ascii_alphanumeric());
    let end = id.len().saturating_sub(SHORT_LETTERS);
    id.get(end..).filter(|_| is_ulid).unwrap_or(id)
}

/// True if what was given is a part of an id, or all of it. Letters may be small or large.
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
