//! The named sections of a system prompt.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Section of a system prompt. The order of the sections is their order in the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PromptSection {
    /// Role of the agent. A configured prompt is this section, and has no further section above the instructions.
    Identity,
    /// Form of the answers.
    Tone,
    /// Rules for changes.
    Rules,
    /// Secrets and permissions.
    Safety,
    /// Results of stopped calls.
    Stops,
    /// Rules for the built-in tools. A session with other tools has no such section.
    Tools,
    /// Folder, system, date and repository of the session.
    Environment,
    /// Instructions of the project.
    Instructions,
    /// Further text of the session's opener.
    Additions,
}

/// Texts of the sections. A section without text is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PromptTexts(BTreeMap<PromptSection, Arc<str>>);

impl PromptTexts {
    pub(super) fn get(&self, section: PromptSection) -> &str {
        self.0.get(&section).map_or("", |text| text)
    }

    /// Replaces a section.
    pub(super) fn set(&mut self, section: PromptSection, text: &str) {
        let text = text.trim_end();
        if text.is_empty() {
            self.0.remove(&section);
        } else {
            self.0.insert(section, text.into());
        }
    }

    /// Returns the whole prompt. Adjacent rules form one list.
    pub(super) fn joined(&self) -> Option<Arc<str>> {
        let mut whole = String::new();
        for text in self.0.values() {
            if !whole.is_empty() {
                let last_line = whole.lines().next_back().unwrap_or_default();
                let is_list = is_item(last_line) && is_item(text);
                whole.push_str(if is_list { "\n" } else { "\n\n" });
            }
            whole.push_str(text);
        }
        (!whole.is_empty()).then(|| whole.into())
    }
}

fn is_item(line: &str) -> bool {
    line.starts_with("- ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_joined_in_order_and_rules_form_one_list() {
        let mut texts = PromptTexts::default();
        assert_eq!(texts.joined(), None);
        texts.set(PromptSection::Additions, "More.");
        texts.set(PromptSection::Safety, "- b\n");
        texts.set(PromptSection::Rules, "Rules:\n- a");
        texts.set(PromptSection::Identity, "You.");
        let whole = texts.joined();
        assert_eq!(whole.as_deref(), Some("You.\n\nRules:\n- a\n- b\n\nMore."));
        texts.set(PromptSection::Rules, " \n");
        assert_eq!(texts.get(PromptSection::Rules), "");
        assert_eq!(texts.joined().as_deref(), Some("You.\n\n- b\n\nMore."));
    }
}
