//! Parts of a message from MCP servers: a resource after `@`, such as `@docs:file:///a.md`, and a prompt as a command,
//! such as `/mcp:docs:review a.md`.

use std::sync::Arc;

use allstop_core::{Image, Images};
use allstop_tools::mcp::{McpPrompt, McpServer};

use super::attached::AttachedImages;
use crate::image_names::names;
use crate::pasted_mark::unmark;

/// Beginning of the command for a prompt.
const PROMPT: &str = "/mcp:";

/// Maximum number of resources of a message. Together they have at most half a million characters.
const RESOURCES_MAX: usize = 8;

/// A message for the model, with the parts that a person has named.
#[derive(Debug)]
pub(super) struct CompleteMessage {
    pub(super) text: String,
    pub(super) attached: AttachedImages,
}

/// True if the line is the command for a prompt of a server.
pub(super) fn is_prompt(text: &str) -> bool {
    text.starts_with(PROMPT)
}

/// Names of resources for completion, such as `docs:file:///a.md`. Servers without an answer are left out.
pub(super) async fn resource_names(servers: &[Arc<McpServer>]) -> Vec<String> {
    let listed = servers.iter().map(async |server| {
        let resources = server.resources().await.unwrap_or_default();
        let name = Arc::clone(server.name());
        let names = resources
            .into_iter()
            .map(move |uri| format!("{name}:{uri}"));
        names.collect::<Vec<_>>()
    });
    futures::future::join_all(listed).await.concat()
}

/// Names of prompts for completion, such as `mcp:docs:review`. Servers without an answer are left out.
pub(super) async fn prompt_names(servers: &[Arc<McpServer>]) -> Vec<String> {
    let listed = servers.iter().map(async |server| {
        let prompts = server.prompts().await.unwrap_or_default();
        let name = Arc::clone(server.name());
        let names = prompts
            .into_iter()
            .map(move |prompt| format!("mcp:{name}:{}", prompt.name));
        names.collect::<Vec<_>>()
    });
    futures::future::join_all(listed).await.concat()
}

/// The server and the address of each resource that a message names. A name with another beginning is text.
fn resources_in<'a>(
    text: &str,
    servers: &'a [Arc<McpServer>],
) -> Vec<(&'a Arc<McpServer>, String)> {
    let named = names(text).into_iter().filter_map(|name| {
        let (server, uri) = name.split_once(':')?;
        let server = servers.iter().find(|one| **one.name() == *server)?;
        (!uri.is_empty()).then(|| (server, uri.to_owned()))
    });
    named.collect()
}

/// Names of the resources of configured servers in a message, such as `docs:file:///a.md`.
pub(super) fn named_resources(text: &str, servers: &[Arc<McpServer>]) -> Vec<String> {
    let named = resources_in(text, servers).into_iter();
    let named = named.map(|(server, uri)| format!("{}:{uri}", server.name()));
    named.collect()
}

/// Adds the resources that a message names, or replaces the command of a prompt by the prompt. The error is a message
/// for the user.
///
/// # Cancel safety
/// Dropping the future cancels the requests.
pub(super) async fn complete_message(
    typed: &str,
    is_prompt: bool,
    attached: AttachedImages,
    servers: &[Arc<McpServer>],
) -> Result<CompleteMessage, String> {
    let mut message = CompleteMessage {
        text: unmark(typed),
        attached,
    };
    if is_prompt {
        let (server, prompt, arguments) = prompt_in(&message.text, servers)?;
        let prompts = server.prompts().await.map_err(|error| error.to_string())?;
        let known = prompts.iter().find(|one| one.name == prompt);
        let known = known.ok_or_else(|| unknown_prompt(server, prompt, &prompts))?;
        let values = values_of(known, arguments)
            .map_err(|why| format!("{why}; {}", usage(server, known)))?;
        let content = server.prompt(prompt, values).await;
        let content = content.map_err(|error| error.to_string())?;
        message.text = content.text;
        message.add_images(&content.images)?;
        return Ok(message);
    }
    let named = resources_in(typed, servers);
    if named.len() > RESOURCES_MAX {
        return Err(format!(
            "a message can name at most {RESOURCES_MAX} resources"
        ));
    }
    for (server, uri) in named {
        let content = server.resource(&uri).await;
        let content = content.map_err(|error| format!("@{}:{uri}: {error}", server.name()))?;
        let bytes = content.text.len();
        message
            .attached
            .rows
            .push(format!("[resource {}:{uri}, {bytes} bytes]", server.name()));
        let text = format!(
            "\n\n[Resource {}:{uri}]\n{}\n[End of the resource]",
            server.name(),
            content.text
        );
        message.text.push_str(&text);
        message.add_images(&content.images)?;
    }
    Ok(message)
}

impl CompleteMessage {
    fn add_images(&mut self, more: &Images) -> Result<(), String> {
        let all: Vec<Image> = self
            .attached
            .images
            .iter()
            .chain(more.iter())
            .cloned()
            .collect();
        self.attached.images = Images::new(all).map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// The server, the name of the prompt, and the arguments in a command such as `/mcp:docs:review a.md`.
fn prompt_in<'a, 't>(
    text: &'t str,
    servers: &'a [Arc<McpServer>],
) -> Result<(&'a Arc<McpServer>, &'t str, &'t str), String> {
    let command = text.strip_prefix(PROMPT).unwrap_or(text);
    let (name, arguments) = command
        .split_once(char::is_whitespace)
        .unwrap_or((command, ""));
    let (server, prompt) = name
        .split_once(':')
        .filter(|(_, prompt)| !prompt.is_empty())
        .ok_or("usage: /mcp:SERVER:PROMPT [ARGUMENTS]; Tab after /mcp: lists the prompts")?;
    let found = servers.iter().find(|one| **one.name() == *server);
    let found = found.ok_or_else(|| {
        let names: Vec<_> = servers.iter().map(|server| &**server.name()).collect();
        match names.as_slice() {
            [] => {
                format!("no MCP server `{server}`: none is configured; `allstop mcp add` adds one")
            }
            names => format!(
                "no MCP server `{server}`; the servers are {}",
                names.join(", ")
            ),
        }
    })?;
    Ok((found, prompt, arguments.trim()))
}

fn unknown_prompt(server: &McpServer, prompt: &str, known: &[McpPrompt]) -> String {
    let names: Vec<_> = known.iter().map(|one| one.name.as_str()).take(20).collect();
    let names = if names.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", names.join(", "))
    };
    format!(
        "the MCP server `{}` has no prompt `{prompt}`; {names}",
        server.name()
    )
}

fn usage(server: &McpServer, prompt: &McpPrompt) -> String {
    let mut usage = format!("usage: {PROMPT}{}:{}", server.name(), prompt.name);
    for (name, is_needed) in &prompt.arguments {
        let name = name.to_uppercase();
        let shown = if *is_needed {
            format!(" {name}")
        } else {
            format!(" [{name}]")
        };
        usage.push_str(&shown);
    }
    usage
}

/// Values of the arguments, in their order. Quotes keep blanks together, and the last argument gets all remaining words.
fn values_of(prompt: &McpPrompt, typed: &str) -> Result<Vec<(String, String)>, String> {
    let words = shlex::split(typed).ok_or("a quote is not closed")?;
    let count = prompt.arguments.len();
    if count == 0 && !words.is_empty() {
        return Err("the prompt has no arguments".to_owned());
    }
    let mut values = Vec::new();
    for (at, (name, is_needed)) in prompt.arguments.iter().enumerate() {
        let rest = words.get(at..).unwrap_or_default();
        let own = if at + 1 == count {
            rest
        } else {
            rest.get(..1).unwrap_or_default()
        };
        if own.is_empty() {
            if *is_needed {
                return Err(format!("the argument `{name}` is missing"));
            }
            continue;
        }
        values.push((name.clone(), own.join(" ")));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_values_of_the_arguments_in_their_order() {
        let prompt = McpPrompt {
            name: "p".into(),
            arguments: vec![("file".into(), true), ("note".into(), false)],
        };
        let values = |typed: &str| {
            let values = values_of(&prompt, typed)?;
            let values = values.iter().map(|(name, value)| format!("{name}={value}"));
            Ok::<_, String>(values.collect::<Vec<_>>())
        };
        assert_eq!(values("a.md").unwrap(), ["file=a.md"]);
        assert_eq!(values("'a b' c d").unwrap(), ["file=a b", "note=c d"]);
        assert_eq!(values("").unwrap_err(), "the argument `file` is missing");
        assert_eq!(values("'a").unwrap_err(), "a quote is not closed");
    }
}
