//! The list of the tests that are left out: `xtask/copilot_suite.txt`.
//!
//! Each line has the language, the file, the name of the test, and the reason, separated by ` | `. A reason is a word or a
//! sentence. The name `*` means all tests of the file.

use std::fs;

use anyhow::{Context as _, bail};

use super::options::SdkLanguage;
use crate::workspace;

const FILE: &str = "xtask/copilot_suite.txt";

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeftOutTest {
    pub(super) language: String,
    pub(super) file: String,
    pub(super) name: String,
    pub(super) reason: String,
}

#[derive(Debug)]
pub(super) struct LeftOutTests(Vec<LeftOutTest>);

impl LeftOutTests {
    pub(super) fn read() -> anyhow::Result<Self> {
        let path = workspace::root().join(FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut all = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [language, file, name, reason] = fields[..] else {
                bail!(
                    "{FILE}:{}: expected `language | file | test | reason`",
                    index + 1
                );
            };
            all.push(LeftOutTest {
                language: language.to_owned(),
                file: file.to_owned(),
                name: name.to_owned(),
                reason: reason.to_owned(),
            });
        }
        Ok(Self(all))
    }

    /// Returns the line for a test.
    pub(super) fn find(
        &self,
        language: SdkLanguage,
        file: &str,
        name: &str,
    ) -> Option<&LeftOutTest> {
        self.of(language)
            .find(|test| test.file == file && (test.name == name || test.name == "*"))
    }

    /// Returns the lines for a language.
    pub(super) fn of(&self, language: SdkLanguage) -> impl Iterator<Item = &LeftOutTest> {
        self.0
            .iter()
            .filter(move |test| test.language == language.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_four_fields() {
        let list = LeftOutTests::parse(
            "# comment\n\npython | f | C::t | github\nnode | g | * | recording\n",
        );
        let list = list.expect("a list");
        let found = list
            .find(SdkLanguage::Python, "f", "C::t")
            .map(|test| &*test.reason);
        assert_eq!(found, Some("github"));
        assert!(list.find(SdkLanguage::Node, "g", "any test").is_some());
        assert!(list.find(SdkLanguage::Go, "g", "any test").is_none());
        assert!(LeftOutTests::parse("python | f | t").is_err());
    }
}
