//! Removal of the queries of URLs from error texts.

/// Removes the queries of URLs from an error text, because a query may contain a key.
pub(super) fn without_queries(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut in_query = false;
    let mut in_url = false;
    for (at, letter) in text.char_indices() {
        in_url |= text[at..].starts_with("://");
        if letter.is_whitespace() || matches!(letter, ')' | '"' | '`' | '>') {
            (in_url, in_query) = (false, false);
        }
        if in_url && letter == '?' && !in_query {
            in_query = true;
            shown.push_str("?…");
        }
        if !in_query {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_has_no_query_of_a_url() {
        for (text, shown) in [
            (
                "error sending request for url (http://h:1/mcp?key=SECRET&a=b): refused?",
                "error sending request for url (http://h:1/mcp?…): refused?",
            ),
            ("is it there? yes", "is it there? yes"),
            (
                "at https://h/?k=S and https://h/x",
                "at https://h/?… and https://h/x",
            ),
        ] {
            assert_eq!(without_queries(text), shown);
        }
    }
}
