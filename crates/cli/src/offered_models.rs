//! The models that a provider or server offers, for `init` and the command `/model`.

use std::fmt::Write as _;
use std::time::Duration;

use allstop_model::{ProviderModel, ProviderOptions};

use crate::host::ProcessHost;

/// Maximum wait for the list: a person waits for it, and can type a name without it.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Number of models that are shown. A longer list hides the question.
const SHOWN_MAX: usize = 30;

/// Asks for the models of a server, or of the provider of `default`. Names of a provider that needs a namespace
/// (`groq::…`) get it.
///
/// # Errors
/// The reason, for a person.
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub(crate) async fn offered_models(
    default: Option<&str>,
    base_url: Option<&str>,
) -> Result<Vec<String>, String> {
    let options = ProviderOptions::default()
        .base_url(base_url.map(str::to_owned))
        .key_lookup(ProcessHost::keys());
    let asked = ProviderModel::new(default.unwrap_or("any"), options);
    let asked = asked.map_err(|error| error.to_string())?;
    let answer = tokio::time::timeout(ANSWER_MAX, asked.offered_models()).await;
    let answer =
        answer.map_err(|_elapsed| format!("no answer within {} s", ANSWER_MAX.as_secs()))?;
    let mut names = answer.map_err(|error| error.to_string())?;
    if let Some((namespace, _)) = default.and_then(|default| default.split_once("::")) {
        for name in &mut names {
            *name = format!("{namespace}::{name}");
        }
    }
    Ok(names)
}

/// The first models, each with its number.
pub(crate) fn numbered_list(names: &[String]) -> String {
    let numbered = names.iter().enumerate();
    let numbered = numbered.map(|(at, name)| format!("{} {name}", at + 1));
    list(&numbered.collect::<Vec<_>>())
}

/// The first models, a line for each.
pub(crate) fn list(names: &[String]) -> String {
    let mut text = String::new();
    for name in names.iter().take(SHOWN_MAX) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name}");
    }
    if names.len() > SHOWN_MAX {
        let _ = writeln!(
            text,
            "  and {} more, which you choose by name",
            names.len() - SHOWN_MAX
        );
    }
    text.trim_end().to_owned()
}
