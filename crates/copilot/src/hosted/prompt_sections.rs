//! Sections of the system prompt, as a client changes them.

use std::collections::BTreeMap;

use allstop_core::SessionId;
use allstop_runtime::{ComposedPrompt, PromptSection, SystemPrompt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::connection::{Client, ClientRequestError};

/// Method of a client that changes the texts of sections.
const TRANSFORM: &str = "systemMessage.transform";

/// System prompt that a client requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestedPrompt {
    pub whole: SystemPrompt,
    pub sections: SectionChanges,
}

/// Changes of sections, by the names of the protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct SectionChanges(BTreeMap<String, Option<SectionChange>>);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct SectionChange {
    action: SectionAction,
    content: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SectionAction {
    Replace,
    Remove,
    Append,
    Prepend,
    /// Excludes the section from a change of its group.
    Preserve,
    /// The client has a function for the section.
    Transform,
}

/// Texts of sections in a request for a transformation, and in its answer.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SectionTexts {
    sections: BTreeMap<String, SectionText>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SectionText {
    content: String,
}

/// Returns the section with this name. The prompt of this server lacks the other sections of the protocol.
fn section_of(name: &str) -> Option<PromptSection> {
    Some(match name {
        "identity" | "preamble" => PromptSection::Identity,
        "tone" => PromptSection::Tone,
        "code_change_rules" => PromptSection::Rules,
        "safety" => PromptSection::Safety,
        "guidelines" => PromptSection::Stops,
        "tool_instructions" => PromptSection::Tools,
        "environment_context" => PromptSection::Environment,
        "custom_instructions" => PromptSection::Instructions,
        _ => return None,
    })
}

impl SectionChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = (&str, &SectionChange)> {
        let all = self.0.iter();
        all.filter_map(|(name, change)| Some((&**name, change.as_ref()?)))
    }

    /// Returns the present texts of the sections that the client transforms.
    fn to_transform(&self, prompt: &ComposedPrompt) -> SectionTexts {
        let all = self.all();
        let chosen = all.filter(|(_, change)| change.action == SectionAction::Transform);
        let sections = chosen.map(|(name, _)| {
            let content = section_of(name).map_or("", |section| prompt.section(section));
            let content = content.to_owned();
            (name.to_owned(), SectionText { content })
        });
        SectionTexts {
            sections: sections.collect(),
        }
    }

    fn apply(&self, prompt: &mut ComposedPrompt, transformed: &SectionTexts) {
        for (name, change) in self.all() {
            let section = section_of(name);
            let before = section.map_or("", |section| prompt.section(section));
            let content = change.content.as_deref().unwrap_or_default();
            let text = match change.action {
                SectionAction::Replace => content.to_owned(),
                SectionAction::Remove => String::new(),
                SectionAction::Append => format!("{before}\n{content}"),
                SectionAction::Prepend => format!("{content}\n{before}"),
                SectionAction::Preserve => continue,
                SectionAction::Transform => match transformed.sections.get(name) {
                    Some(text) => text.content.clone(),
                    None => continue,
                },
            };
            match section {
                Some(section) => prompt.set_section(section, text.trim()),
                None => add(prompt, text.trim()),
            }
            let is_new = matches!(
                change.action,
                SectionAction::Replace | SectionAction::Remove
            );
            // The tone belongs to the group of the identity.
            if name == "identity" && is_new && !self.0.contains_key("tone") {
                prompt.set_section(PromptSection::Tone, "");
            }
        }
    }

    /// Changes the sections of a prompt. Sections with a function of the client get the answers of this client.
    ///
    /// # Errors
    /// Returns an error if the client does not answer. The other changes are then made.
    ///
    /// # Cancel safety
    /// Cancel safe: the prompt is incomplete only inside this call.
    pub(super) async fn change(
        &self,
        prompt: &mut ComposedPrompt,
        session: &SessionId,
        client: &Client,
    ) -> Result<(), ClientRequestError> {
        let SectionTexts { sections } = self.to_transform(prompt);
        let answer = if sections.is_empty() {
            Ok(SectionTexts::default())
        } else {
            let params = json!({ "sessionId": session, "sections": sections });
            client.request::<SectionTexts>(TRANSFORM, &params).await
        };
        let (transformed, failure) = match answer {
            Ok(transformed) => (transformed, Ok(())),
            Err(error) => (SectionTexts::default(), Err(error)),
        };
        self.apply(prompt, &transformed);
        failure
    }
}

/// Adds a text to the end of the prompt.
fn add(prompt: &mut ComposedPrompt, text: &str) {
    let before = prompt.section(PromptSection::Additions);
    let all = format!("{before}\n\n{text}");
    prompt.set_section(PromptSection::Additions, all.trim());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(changes: serde_json::Value) -> String {
        let changes: SectionChanges = serde_json::from_value(changes).unwrap();
        let mut prompt = ComposedPrompt::default();
        prompt.set_section(PromptSection::Identity, "You.");
        prompt.set_section(PromptSection::Tone, "Brief.");
        prompt.set_section(PromptSection::Safety, "- Safe.");
        changes.apply(&mut prompt, &SectionTexts::default());
        prompt.text().map_or(String::new(), |text| text.to_string())
    }

    #[test]
    fn sections_are_changed() {
        let change = |action: &str| json!({ "action": action, "content": "x" });
        for (name, action, text) in [
            ("safety", "replace", "You.\n\nBrief.\n\nx"),
            ("safety", "remove", "You.\n\nBrief."),
            ("safety", "append", "You.\n\nBrief.\n\n- Safe.\nx"),
            ("safety", "prepend", "You.\n\nBrief.\n\nx\n- Safe."),
            ("safety", "transform", "You.\n\nBrief.\n\n- Safe."),
            ("identity", "replace", "x\n\n- Safe."),
            ("preamble", "replace", "x\n\nBrief.\n\n- Safe."),
            ("other", "append", "You.\n\nBrief.\n\n- Safe.\n\nx"),
            ("other", "remove", "You.\n\nBrief.\n\n- Safe."),
        ] {
            let changes = json!({ name: change(action), "none": null });
            assert_eq!(changed(changes), text, "{name} {action}");
        }
        let kept = json!({ "identity": change("remove"), "tone": change("preserve") });
        assert_eq!(changed(kept), "Brief.\n\n- Safe.");
    }
}
