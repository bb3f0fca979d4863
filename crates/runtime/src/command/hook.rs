//! A hook that is a command.

use std::sync::Arc;

use allstop_agent::{Hook, HookCx, HookEvent, HookVerdict};
use futures::future::BoxFuture;

use super::CommandSettings;
use super::event::CommandEvent;
use super::run::{CommandEnd, UserCommand};
use crate::config::{COMMAND_TIMEOUT_DEFAULT, HookConfig, HookMoment};

#[derive(Debug)]
pub(crate) struct CommandHook {
    on: HookMoment,
    command: UserCommand,
}

impl CommandHook {
    pub(crate) fn new(config: &HookConfig, settings: &CommandSettings) -> Self {
        let limit = config.timeout.map_or(COMMAND_TIMEOUT_DEFAULT, Into::into);
        Self {
            on: config.on,
            command: UserCommand::new(&config.command, limit, settings),
        }
    }
}

impl Hook for CommandHook {
    fn name(&self) -> &Arc<str> {
        &self.command.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        event.name() == self.on.as_str()
    }

    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let (command, cx) = (self.command.clone(), cx.clone());
        Box::pin(async move {
            let event = CommandEvent::of_hook(&cx, &event, command.event_folder());
            let name = &command.name;
            let reason = match command.run(&cx.scope, event).await {
                CommandEnd::Passed => return HookVerdict::Continue,
                CommandEnd::Denied { output } if output.is_empty() => {
                    format!("denied by the hook `{name}`")
                }
                CommandEnd::Denied { output } => output,
                CommandEnd::Failed { why } => format!("the hook `{name}` failed: {why}"),
            };
            HookVerdict::Deny { reason }
        })
    }
}
