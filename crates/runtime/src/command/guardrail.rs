//! A guardrail that is a command. A guardrail checks the input or the output of a turn. The command fails closed: every
//! result except exit code 0 is a refusal.

use std::sync::Arc;

use allstop_agent::{Guardrail, GuardrailStage, GuardrailVerdict, HookCx};
use futures::future::BoxFuture;

use super::CommandSettings;
use super::event::CommandEvent;
use super::run::{CommandEnd, UserCommand};
use crate::config::{COMMAND_TIMEOUT_DEFAULT, GuardrailConfig};

#[derive(Debug)]
pub(crate) struct CommandGuardrail {
    stage: GuardrailStage,
    command: UserCommand,
}

impl CommandGuardrail {
    pub(crate) fn new(config: &GuardrailConfig, settings: &CommandSettings) -> Self {
        let limit = config.timeout.map_or(COMMAND_TIMEOUT_DEFAULT, Into::into);
        Self {
            stage: config.on,
            command: UserCommand::new(&config.command, limit, settings),
        }
    }
}

impl Guardrail for CommandGuardrail {
    fn name(&self) -> &Arc<str> {
        &self.command.name
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        stage == self.stage
    }

    fn check(
        &self,
        cx: &HookCx,
        stage: GuardrailStage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        let (command, cx) = (self.command.clone(), cx.clone());
        Box::pin(async move {
            let event = CommandEvent::of_guardrail(&cx, stage, &text, command.event_folder());
            let name = &command.name;
            let reason = match command.run(&cx.scope, event).await {
                CommandEnd::Passed => return GuardrailVerdict::Pass,
                CommandEnd::Denied { output } if output.is_empty() => {
                    format!("refused by the guardrail `{name}`")
                }
                CommandEnd::Denied { output } => output,
                CommandEnd::Failed { why } => format!("the guardrail `{name}` failed: {why}"),
            };
            GuardrailVerdict::Refuse { reason }
        })
    }
}
