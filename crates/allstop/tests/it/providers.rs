//! Models of providers: their keys.

#![cfg(feature = "providers")]

use std::process::Command;

use allstop::model::{ProviderModel, ProviderOptions};
use allstop::prelude::*;

/// Variable that marks the child process.
const CHILD: &str = "ALLSTOP_TEST_KEY_CHILD";

fn is_child() -> bool {
    #[expect(clippy::disallowed_methods, reason = "set by the parent process")]
    std::env::var_os(CHILD).is_some()
}

/// Not a test by itself: the child process has a key in its environment.
#[test]
fn child_with_a_key() {
    if !is_child() {
        return;
    }
    let model = model::from_env("gpt-5-mini").unwrap();
    assert_eq!(model.name(), "openai_resp::gpt-5-mini");
    // Options without a lookup do not read the environment, and do not claim that the variable is not set.
    let error = ProviderModel::new("gpt-5-mini", ProviderOptions::default()).unwrap_err();
    assert!(!error.message.contains("is not set"), "{error}");
    assert!(error.hint.unwrap().contains("ProviderOptions::from_env"));
    let missing = model::from_env("claude-sonnet-4-6").unwrap_err();
    assert!(
        missing.message.starts_with("ANTHROPIC_API_KEY is not set"),
        "{missing}"
    );
    assert!(
        !missing.hint.unwrap().contains("--"),
        "a library has no flags"
    );
}

#[test]
fn key_comes_from_the_environment() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["providers::child_with_a_key", "--exact"])
        .env(CHILD, "1")
        .env("OPENAI_API_KEY", "sk-test")
        .env_remove("ANTHROPIC_API_KEY")
        .output()
        .unwrap();
    assert!(
        child.status.success(),
        "{}",
        String::from_utf8_lossy(&child.stdout)
    );
}
