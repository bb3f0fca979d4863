//! `cargo xtask texts`: prints all texts of the program in one listing, so that a person can read them from start to
//! end.
//!
//! The listing contains three parts: the help of each command, the texts in the sources (errors, hints, questions,
//! progress), and the snapshots of tests (receipts, views, tables).

use std::path::Path;
use std::process::Command;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::sources::{SourceFile, is_for_tests, parse, read};
use crate::{exec, workspace};

/// Crates whose texts only developers read.
const FOR_DEVELOPERS: [&str; 3] = ["crates/bench/", "crates/testkit/", "xtask/"];

/// Attributes whose texts the program does not print.
const NOT_PRINTED: [&str; 4] = ["doc", "expect", "allow", "cfg"];

pub(crate) fn run() -> anyhow::Result<()> {
    exec::step(
        "build",
        workspace::cargo().args(["build", "--package=allstop-cli", "--all-features"]),
    )?;
    let binary = workspace::target_dir()?.join("debug/allstop");
    print_help(&binary, &[])?;
    for file in read("crates/*/src/*.rs")? {
        print_texts(&file)?;
    }
    for SourceFile { path, text } in read("*.snap")? {
        println!("\n══ {}\n{text}", path.display());
    }
    Ok(())
}

/// Prints the help of a command and of its subcommands.
fn print_help(binary: &Path, command: &[&str]) -> anyhow::Result<()> {
    let help = exec::output(Command::new(binary).args(command).arg("--help"))?;
    println!("\n══ allstop {} --help\n{help}", command.join(" "));
    for subcommand in subcommands(&help) {
        let command: Vec<_> = command.iter().copied().chain([subcommand]).collect();
        print_help(binary, &command)?;
    }
    Ok(())
}

/// Returns the subcommands in a help text, without `help`.
fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    let list = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, list)| list);
    let rows = list.lines().take_while(|row| row.starts_with("  "));
    // The second line of a long description has a larger indent.
    let names = rows.filter_map(|row| row.strip_prefix("  ").filter(|row| !row.starts_with(' ')));
    names
        .filter_map(|row| row.split_whitespace().next())
        .filter(|name| *name != "help")
}

fn print_texts(file: &SourceFile) -> anyhow::Result<()> {
    let path = file.path.to_string_lossy();
    let is_printed = |prefix: &&str| path.starts_with(prefix);
    if FOR_DEVELOPERS.iter().any(is_printed) || path.ends_with("tests.rs") {
        return Ok(());
    }
    let mut texts = Texts::default();
    texts.visit_file(&parse(&file.path, &file.text)?);
    if !texts.0.is_empty() {
        println!("\n══ {path}");
    }
    for (line, text) in texts.0 {
        println!("{line:5}  {}", text.replace('\n', "\n       "));
    }
    Ok(())
}

/// String literals that have at least two words, with the numbers of their lines.
#[derive(Default)]
struct Texts(Vec<(usize, String)>);

impl Texts {
    fn add(&mut self, literal: &syn::LitStr) {
        let text = literal.value();
        if text.split_whitespace().nth(1).is_some() && text.contains(char::is_alphabetic) {
            self.0.push((literal.span().start().line, text));
        }
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    let mut parsed = syn::parse_str::<syn::LitStr>(&literal.to_string());
                    if let Ok(text) = &mut parsed {
                        text.set_span(literal.span());
                        self.add(text);
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(module) => &module.attrs,
            syn::Item::Fn(function) => &function.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let name = |name: &&str| attribute.path().is_ident(name);
        if let syn::Meta::List(list) = &attribute.meta
            && !NOT_PRINTED.iter().any(name)
        {
            self.add_tokens(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.add_tokens(called.tokens.clone());
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.add(literal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_read_from_help() {
        let help = "Usage: a\n\nCommands:\n  run   Run it\n        and exit\n  stop  Stop it\n  help  Help\n\nOptions:\n";
        assert_eq!(subcommands(help).collect::<Vec<_>>(), ["run", "stop"]);
        assert_eq!(subcommands("Usage: a\n").count(), 0);
    }

    #[test]
    fn texts_of_macros_and_errors_are_found_but_not_those_of_tests() {
        let source = r#"
            #[expect(dead_code, reason = "not printed")]
            #[derive(thiserror::Error)]
            enum E { #[error("it {0} failed")] Failed(u8) }
            fn f() { warn!("two words {}", format!("three more words")); g("word", "a hint"); }
            #[cfg(test)]
            mod tests { const A: &str = "of a test"; }
        "#;
        let mut texts = Texts::default();
        texts.visit_file(&parse(Path::new("a.rs"), source).expect("Rust"));
        let found: Vec<_> = texts
            .0
            .iter()
            .map(|(line, text)| (*line, text.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (4, "it {0} failed"),
                (5, "two words {}"),
                (5, "three more words"),
                (5, "a hint")
            ]
        );
    }
}
