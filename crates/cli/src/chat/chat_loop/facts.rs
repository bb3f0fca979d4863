//! The answer to `/status`: the facts about a chat.

use allstop_agent::tokens_of;
use allstop_model::provider::without_secrets;

use super::ChatLoop;
use crate::host::ProcessHost;

impl ChatLoop<'_> {
    /// Prints the facts about the chat.
    pub(super) fn print_status(&self) {
        let (chat, status) = (&self.chat, &self.status);
        let (system, session) = (&chat.system, &chat.session);
        let model = system.model_name();
        let model = match &system.config().model.base_url {
            Some(url) => format!("{model}, server {}", without_secrets(url)),
            None => match model.split_once("::") {
                Some((provider, model)) => format!("{model}, provider {provider}"),
                None => model.to_owned(),
            },
        };
        let store = match system.store_file() {
            Some(file) => ProcessHost::below_home(&file.to_string_lossy()),
            None => "in memory".to_owned(),
        };
        let works = session.background().into_iter();
        let works = works.filter(|work| work.is_running());
        let left = session.orphaned_work().into_iter();
        let left = left.filter(|left| left.alive);
        let works: Vec<_> = works
            .map(|work| format!("{} ({})", work.id, work.name))
            .chain(left.map(|left| format!("{} ({})", left.id, left.name)))
            .collect();
        let folder = ProcessHost::below_home(&system.folder().to_string_lossy());
        let mode = status.describe_mode();
        let before = [
            ("model", model),
            ("session", session.id().to_string()),
            ("store", store),
            ("folder", folder),
            ("mode", mode.trim_start_matches("mode ").to_owned()),
            ("policy", session.policy().to_string()),
        ];
        let background = match works.as_slice() {
            [] => "nothing".to_owned(),
            works => works.join(", "),
        };
        let (context, used) = (status.context_use(), status.describe_usage());
        self.print_when_ready(async move |session| {
            let history = session.history().await;
            let estimated = history.map_or(0, |conversation| tokens_of(&conversation.messages));
            let after = [
                ("context", context.describe(estimated)),
                ("used", used),
                ("background", background),
            ];
            let lines = before.into_iter().chain(after);
            let lines = lines.map(|(name, value)| format!("{name:<11} {value}"));
            lines.collect::<Vec<_>>().join("\n")
        });
    }
}
