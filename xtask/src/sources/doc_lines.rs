//! Checks that each doc comment begins with a noun or a verb, and never with a bare clause.

use anyhow::bail;

use super::{SourceFile, read};

/// First words of clauses such as "Whether it runs". A doc comment must name a thing, and such a clause names none.
const CLAUSES: [&str; 12] = [
    "What", "Whatever", "Who", "Whoever", "Whose", "Whom", "How", "Whether", "Where", "Why",
    "Which", "That",
];

pub(super) fn check() -> anyhow::Result<()> {
    let complaints: Vec<String> = read("*.rs")?.iter().flat_map(bare_clauses).collect();
    if complaints.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\n{} doc lines begin with a clause. Begin with a noun (\"Time of the last output\") or a verb (\"Returns …\", \
         \"True if …\")",
        complaints.join("\n"),
        complaints.len()
    )
}

fn bare_clauses(file: &SourceFile) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        let doc = doc_text(line);
        if let Some(text) = doc
            && !inside
            && CLAUSES.contains(&first_word(text))
        {
            complaints.push(format!("{}:{number}: {text}", file.path.display()));
        }
        inside = doc.is_some_and(|text| !text.is_empty());
    }
    complaints
}

/// Returns the text of a line, if the line is a doc comment.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or(line.strip_prefix("//!"))?;
    Some(text.trim())
}

fn first_word(text: &str) -> &str {
    text.split(|letter: char| !letter.is_alphanumeric())
        .next()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        bare_clauses(&SourceFile {
            path: "a.rs".into(),
            text: text.to_owned(),
        })
        .len()
    }

    #[test]
    fn clause_at_the_start_of_a_paragraph_fails() {
        assert_eq!(complaints("/// What the turn did.\nstruct Turn;"), 1);
        assert_eq!(complaints("//! How a turn ends."), 1);
        assert_eq!(
            complaints("    /// Whether it is open.\n    open: bool,"),
            1
        );
        assert_eq!(complaints("/// Ends the turn.\n///\n/// Which is safe."), 1);
    }

    #[test]
    fn nouns_verbs_comments_and_later_lines_pass() {
        assert_eq!(complaints("/// Outcome of the turn."), 0);
        assert_eq!(complaints("/// Howling wind."), 0);
        assert_eq!(
            complaints("/// Ends the turn and says\n/// what it did."),
            0
        );
        assert_eq!(complaints("// What the turn did."), 0);
    }
}
