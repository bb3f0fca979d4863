//! Checks that no two types in the workspace have the same name.

use std::collections::BTreeMap;

use anyhow::bail;
use syn::visit::{self, Visit};

use super::{is_for_tests, parse, read};

/// Names that several types may have, each with the reason.
const EXCEPTIONS: [(&str, &str); 0] = [];

pub(super) fn check() -> anyhow::Result<()> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in read("crates/*/src/*.rs")? {
        let mut types = TypeNames::default();
        types.visit_file(&parse(&file.path, &file.text)?);
        for (name, line) in types.found {
            let place = format!("{}:{line}", file.path.display());
            places.entry(name).or_default().push(place);
        }
    }
    let complaints = ambiguous(&places);
    if complaints.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\n{} of {} type names stand for several types: put the noun that tells them apart in front",
        complaints.join("\n"),
        complaints.len(),
        places.len()
    )
}

fn ambiguous(places: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let excepted = |name: &str| EXCEPTIONS.iter().any(|(exception, _)| *exception == name);
    places
        .iter()
        .filter(|(name, places)| places.len() > 1 && !excepted(name))
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect()
}

/// Names of the structs, enums and traits in a file, with the numbers of their lines. Unit tests are omitted.
#[derive(Default)]
struct TypeNames {
    found: Vec<(String, usize)>,
}

impl TypeNames {
    fn add(&mut self, name: &syn::Ident) {
        self.found
            .push((name.to_string(), name.span().start().line));
    }
}

impl<'ast> Visit<'ast> for TypeNames {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if !is_for_tests(&item.attrs) {
            self.add(&item.ident);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if !is_for_tests(&item.attrs) {
            self.add(&item.ident);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if !is_for_tests(&item.attrs) {
            self.add(&item.ident);
        }
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_unit_tests_do_not_count() {
        let text = "struct One; mod inner { enum Two {} trait Three {} }
            fn f() { struct Four; }
            #[cfg(test)] mod tests { struct One; }";
        let mut types = TypeNames::default();
        types.visit_file(&syn::parse_file(text).expect("Rust"));
        let names: Vec<_> = types.found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["One", "Two", "Three", "Four"]);
    }

    #[test]
    fn duplicate_type_names_are_reported() {
        let places = BTreeMap::from([
            (
                "Known".to_owned(),
                vec!["a.rs:1".to_owned(), "b.rs:2".to_owned()],
            ),
            ("Turn".to_owned(), vec!["c.rs:3".to_owned()]),
        ]);
        assert_eq!(ambiguous(&places), ["Known: a.rs:1, b.rs:2"]);
    }
}
