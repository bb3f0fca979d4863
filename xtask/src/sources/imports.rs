//! Modules of one crate, each with the files from which it imports names.
//!
//! The analysis starts at the root of the crate and follows `mod` declarations. It skips modules that only tests use. A
//! re-exported name leads to the file that defines the name. Paths inside macros are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use syn::visit::{self, Visit};

use super::{is_for_tests, parse};

/// Maximum number of re-exports that are followed for one name.
const REEXPORTS_MAX: usize = 16;

/// Files of a crate. Each file has the set of files from which it imports names.
pub(super) type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// Path of a module or of a name, from the root of the crate.
type Names = Vec<String>;

/// Reads the imports of a crate. `root` is the `lib.rs` or `main.rs` of the crate.
pub(super) fn of_crate(root: &Path) -> anyhow::Result<Imports> {
    let mut modules = Modules::default();
    let folder = root.parent().context("a crate's root lies in a folder")?;
    modules.add_file(Vec::new(), root, folder)?;
    Ok(modules.imports())
}

#[derive(Default)]
struct Modules {
    by_path: BTreeMap<Names, Module>,
}

struct Module {
    file: PathBuf,
    uses: Vec<Import>,
    /// Paths in code that consist of several names. A path that begins with another crate or with a type leads to no
    /// file of this crate.
    paths: Vec<Names>,
}

/// One name that a `use` brings into a module.
struct Import {
    /// The path as written, but without the `*` of a glob.
    path: Names,
    /// The name that the import has in the module. `None` for a glob.
    name: Option<String>,
    public: bool,
}

impl Modules {
    fn add_file(&mut self, path: Names, file: &Path, folder: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = parse(file, &text)?;
        self.add_items(path, file, folder, &parsed.items)
    }

    /// Adds a module and its child modules. The files of the child modules are in `folder`.
    fn add_items(
        &mut self,
        path: Names,
        file: &Path,
        folder: &Path,
        items: &[syn::Item],
    ) -> anyhow::Result<()> {
        let mut module = Module {
            file: file.to_owned(),
            uses: Vec::new(),
            paths: Vec::new(),
        };
        for item in items {
            match item {
                // A module with a `path` attribute is a variant of another module for another platform.
                syn::Item::Mod(child) if is_for_tests(&child.attrs) || has_path(&child.attrs) => {}
                syn::Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let child_path = [&path[..], std::slice::from_ref(&name)].concat();
                    let below = folder.join(&name);
                    if let Some((_, items)) = &child.content {
                        self.add_items(child_path, file, &below, items)?;
                    } else {
                        self.add_file(child_path, &module_file(folder, &name)?, &below)?;
                    }
                }
                other => CodeImports(&mut module).visit_item(other),
            }
        }
        self.by_path.insert(path, module);
        Ok(())
    }

    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (path, module) in &self.by_path {
            let from = imports.entry(module.file.clone()).or_default();
            // A re-export of a name from a child module does not count as an import, because the module does not use
            // the name.
            let used = module.uses.iter().filter(|import| !import.public);
            let paths = used.map(|import| &import.path).chain(&module.paths);
            let files = paths.filter_map(|written| self.file_of(path, written, REEXPORTS_MAX));
            from.extend(files.filter(|file| **file != module.file).cloned());
        }
        imports
    }

    /// Returns the file that defines the name at the end of a path. The path was written in the module `at`. `None` if
    /// the path belongs to another crate.
    fn file_of(&self, at: &[String], written: &[String], reexports: usize) -> Option<&PathBuf> {
        let (mut module, rest) = self.start(at, written)?;
        for (index, name) in rest.iter().enumerate() {
            let child = [&module[..], std::slice::from_ref(name)].concat();
            if self.by_path.contains_key(&child) {
                module = child;
                continue;
            }
            let after = &rest[index + 1..];
            return self
                .reexported(&module, name, after, reexports)
                .or_else(|| Some(&self.by_path.get(&module)?.file));
        }
        Some(&self.by_path.get(&module)?.file)
    }

    fn reexported(
        &self,
        module: &[String],
        name: &String,
        after: &[String],
        reexports: usize,
    ) -> Option<&PathBuf> {
        let reexports = reexports.checked_sub(1)?;
        let uses = &self.by_path.get(module)?.uses;
        let import = uses
            .iter()
            .find(|import| import.name.as_ref() == Some(name))?;
        let target = [&import.path[..], after].concat();
        self.file_of(module, &target, reexports)
    }

    /// Returns the module in which a written path begins, and the remaining names of the path.
    fn start<'a>(&self, at: &[String], written: &'a [String]) -> Option<(Names, &'a [String])> {
        let mut module = at.to_vec();
        let mut rest = written;
        match rest.first()?.as_str() {
            "crate" => (module, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            name => {
                let child = [at, &[name.to_owned()]].concat();
                if !self.by_path.contains_key(&child) {
                    return None;
                }
            }
        }
        while rest.first().is_some_and(|name| name == "super") {
            module.pop()?;
            rest = &rest[1..];
        }
        Some((module, rest))
    }
}

fn has_path(attributes: &[syn::Attribute]) -> bool {
    let mut names = attributes.iter().map(syn::Attribute::path);
    names.any(|name| name.is_ident("path"))
}

fn module_file(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let candidates = [
        folder.join(format!("{name}.rs")),
        folder.join(name).join("mod.rs"),
    ];
    match candidates.iter().find(|candidate| candidate.exists()) {
        Some(file) => Ok(file.clone()),
        None => bail!("no file of the module {name} in {}", folder.display()),
    }
}

/// Collects the imports of one item.
struct CodeImports<'a>(&'a mut Module);

impl<'ast> Visit<'ast> for CodeImports<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        flatten(&item.tree, &mut Vec::new(), &mut |path, name| {
            self.0.uses.push(Import { path, name, public });
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Names = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        if names.len() > 1 {
            self.0.paths.push(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // A visibility such as `pub(in crate::a)` imports nothing from `a`.
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {
        // Modules inside functions are ignored.
    }
}

fn flatten(tree: &syn::UseTree, prefix: &mut Names, add: &mut impl FnMut(Names, Option<String>)) {
    match tree {
        syn::UseTree::Path(part) => {
            prefix.push(part.ident.to_string());
            flatten(&part.tree, prefix, add);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, add);
            }
        }
        syn::UseTree::Glob(_) => add(prefix.clone(), None),
        syn::UseTree::Name(name) if name.ident == "self" => {
            add(prefix.clone(), prefix.last().cloned());
        }
        syn::UseTree::Name(name) => {
            let path = [&prefix[..], &[name.ident.to_string()]].concat();
            add(path, Some(name.ident.to_string()));
        }
        syn::UseTree::Rename(name) => {
            let path = [&prefix[..], &[name.ident.to_string()]].concat();
            add(path, Some(name.rename.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let mut modules = Modules::default();
        for (path, text) in files {
            let names = path.split('/').filter(|name| !name.is_empty());
            let names: Names = names.map(str::to_owned).collect();
            let items = syn::parse_file(text).expect("Rust").items;
            let file = PathBuf::from(format!("{path}.rs"));
            modules
                .add_items(names, &file, Path::new(""), &items)
                .expect("no children");
        }
        modules
    }

    fn imports_of(files: &[(&str, &str)], file: &str) -> Vec<String> {
        let imports = modules(files).imports();
        let imported = imports[Path::new(file)].iter();
        imported.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn reexport_leads_to_the_file_that_defines_the_name() {
        let files = [
            ("", "pub use turn::Turn;"),
            ("turn", "pub(crate) use end::{End as Turn};"),
            ("turn/end", "pub struct End;"),
            ("other", "use crate::Turn;"),
        ];
        assert_eq!(imports_of(&files, "other.rs"), ["turn/end.rs"]);
        assert!(imports_of(&files, ".rs").is_empty(), "a facade is no user");
    }

    #[test]
    fn imports_in_groups_in_code_and_from_parents_are_seen() {
        let files = [
            ("", ""),
            (
                "a",
                "use super::{b::{self, B}, c}; fn f() { crate::d::g() }",
            ),
            ("b", "use std::fmt; pub(in crate::c) struct B;"),
            ("c", ""),
            ("d", ""),
        ];
        assert_eq!(imports_of(&files, "a.rs"), ["b.rs", "c.rs", "d.rs"]);
        assert!(imports_of(&files, "b.rs").is_empty());
    }

    #[test]
    fn paths_that_begin_with_a_child_module_are_seen() {
        let files = [
            ("", ""),
            (
                "a",
                "use child::deeper; fn f() { child::g(); deeper::h::<child::T>() }",
            ),
            ("a/child", ""),
            ("a/child/deeper", "use super::super::F;"),
        ];
        assert_eq!(
            imports_of(&files, "a.rs"),
            ["a/child/deeper.rs", "a/child.rs"]
        );
        let only_in_code = [("", ""), ("a", "fn f() { child::g() }"), ("a/child", "")];
        assert_eq!(imports_of(&only_in_code, "a.rs"), ["a/child.rs"]);
    }

    #[test]
    fn imports_of_unit_tests_do_not_count() {
        let files = [
            ("", ""),
            ("a", "#[cfg(test)] mod tests { use crate::b::B; }"),
            ("b", "struct B;"),
        ];
        assert!(imports_of(&files, "a.rs").is_empty());
    }
}
