//! Checks that each public struct of inputs (options, limits, settings) is `#[non_exhaustive]`, so that a new field breaks
//! no program that embeds Allstop.

use anyhow::bail;
use syn::visit::{self, Visit};

use super::{SourceFile, is_for_tests, parse, read};

/// Last words of the names of structs that programs fill.
const INPUTS: [&str; 12] = [
    "Config",
    "Deadlines",
    "Filter",
    "Limits",
    "Options",
    "Parts",
    "Policy",
    "Request",
    "Section",
    "Settings",
    "Setup",
    "Spec",
];

/// Structs with such a name that stay exhaustive, each with the reason.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("FrameLimits", "a frame has a header and a body"),
    ("IncomingRequest", "JSON-RPC defines the parts of a request"),
    ("OutcomeParts", "a result, which no program fills"),
    ("SessionSettings", "a record of the log"),
];

pub(super) fn check() -> anyhow::Result<()> {
    let mut exhaustive = Vec::new();
    for file in read("crates/*/src/*.rs")? {
        exhaustive.extend(exhaustive_inputs(&file)?);
    }
    let excepted = |name: &str| EXCEPTIONS.iter().any(|(exception, _)| *exception == name);
    let found = |name: &str| exhaustive.iter().any(|(found, _)| found == name);
    let missing = exhaustive.iter().filter(|(name, _)| !excepted(name));
    let stale = EXCEPTIONS.iter().filter(|(name, _)| !found(name));
    let complaints: Vec<String> = missing
        .map(|(name, place)| format!("{place}: {name} is not #[non_exhaustive]"))
        .chain(stale.map(|(name, _)| format!("{name} needs no exception")))
        .collect();
    if complaints.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\nAdd the attribute and a constructor, or an exception with its reason",
        complaints.join("\n")
    )
}

/// Returns the name and the place of each public struct of inputs that has public fields and no `#[non_exhaustive]`.
fn exhaustive_inputs(file: &SourceFile) -> anyhow::Result<Vec<(String, String)>> {
    let mut structs = ExhaustiveInputs::default();
    structs.visit_file(&parse(&file.path, &file.text)?);
    let path = file.path.display();
    let placed = structs.found.into_iter();
    Ok(placed
        .map(|(name, line)| (name, format!("{path}:{line}")))
        .collect())
}

/// Names of the structs in a file, with the numbers of their lines. Unit tests are omitted.
#[derive(Default)]
struct ExhaustiveInputs {
    found: Vec<(String, usize)>,
}

impl<'ast> Visit<'ast> for ExhaustiveInputs {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let name = item.ident.to_string();
        let is_public =
            |visibility: &syn::Visibility| matches!(visibility, syn::Visibility::Public(_));
        let is_input = is_public(&item.vis)
            && INPUTS.iter().any(|word| name.ends_with(word))
            && item.fields.iter().any(|field| is_public(&field.vis));
        let mut attributes = item.attrs.iter();
        let may_grow = attributes.any(|attribute| attribute.path().is_ident("non_exhaustive"));
        if is_input && !may_grow {
            self.found.push((name, item.ident.span().start().line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let file = SourceFile {
            path: "a.rs".into(),
            text: text.to_owned(),
        };
        let found = exhaustive_inputs(&file).expect("the text is valid");
        found.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn public_options_must_be_able_to_grow() {
        assert_eq!(found("pub struct AOptions { pub a: u32 }"), ["AOptions"]);
        assert!(found("#[non_exhaustive]\npub struct AOptions { pub a: u32 }").is_empty());
    }

    #[test]
    fn other_structs_pass() {
        assert!(found("pub(crate) struct AOptions { pub a: u32 }").is_empty());
        assert!(found("pub struct AOptions { a: u32 }").is_empty());
        assert!(found("pub struct ASummary { pub a: u32 }").is_empty());
    }
}
