//! Allstop commands that messages suggest and that users copy into a shell.

use std::path::{Path, PathBuf};

use allstop_core::{SessionId, SessionSettings};

use crate::args::{ChatWith, ModelArgs, ProjectConfigChoice, StoreArgs};
use crate::host::ProcessHost;
use crate::shell_quote::quoted;
use crate::short_id::short;

/// Quoted flags that a later command on the same session needs again.
#[derive(Debug, Clone, Default)]
pub(crate) struct SameFlags(String);

impl SameFlags {
    /// Flags of the store.
    pub(crate) fn of_store(store: &StoreArgs) -> Self {
        let mut flags = Self::default();
        flags.path("--store", store.store.as_deref());
        flags
    }

    /// Flags that name the store in use: the store of a flag, or else the `configured` store. The `configured` store is
    /// named only if flags of this command selected its configuration: commands that search for sessions do not accept
    /// the configuration flags.
    pub(crate) fn of_used_store(
        model: &ModelArgs,
        store: &StoreArgs,
        configured: Option<&Path>,
    ) -> Self {
        let is_only_here =
            model.config.is_some() || model.project_config == ProjectConfigChoice::Trust;
        let configured = configured.filter(|_| is_only_here);
        let mut flags = Self::default();
        flags.path("--store", store.store.as_deref().or(configured));
        flags
    }

    /// Flags of the configuration file and of the store, with absolute paths, for a command in another folder.
    pub(crate) fn of_store_elsewhere(model: &ModelArgs, store: &StoreArgs) -> Self {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let mut flags = Self::default();
        flags.path("--config", model.config.as_ref().map(absolute).as_deref());
        flags.path("--store", store.store.as_ref().map(absolute).as_deref());
        flags
    }

    /// Flags of the store, and the model flags whose values the session does not remember.
    pub(crate) fn of_remembered(model: &ModelArgs, store: &StoreArgs) -> Self {
        let variables = ["ALLSTOP_MODEL", "ALLSTOP_BASE_URL"].map(ProcessHost::text_variable);
        if is_remembered(model, &variables) {
            let model = ModelArgs {
                model: None,
                base_url: None,
                ..model.clone()
            };
            return Self::of(&model, store);
        }
        Self::of(model, store)
    }

    /// Flags of the model and of the store.
    fn of(model: &ModelArgs, store: &StoreArgs) -> Self {
        let mut flags = Self::default();
        if let Some(name) = &model.model {
            flags.push("--model", &quoted(name));
        }
        match &model.base_url {
            // The URL may contain a password or a key. The command therefore contains the name of an environment
            // variable, and works only where this variable is set.
            Some(url) if url.contains(['@', '?']) => {
                flags.push("--base-url", "\"$ALLSTOP_BASE_URL\"");
            }
            Some(url) => flags.push("--base-url", &quoted(url)),
            None => {}
        }
        flags.path("--config", model.config.as_deref());
        if model.project_config != ProjectConfigChoice::Ask {
            flags.push("--project-config", model.project_config.as_str());
        }
        flags.path("--system", model.prompt.system.as_deref());
        if model.prompt.no_project_instructions {
            flags.0 += " --no-project-instructions";
        }
        flags.path("--store", store.store.as_deref());
        flags
    }

    /// Flags of the model, of the store and of the chat itself, so that the chat continues with the same settings.
    pub(crate) fn of_chat(with: &ChatWith, store: &StoreArgs) -> Self {
        let mut flags = Self::of_remembered(&with.model, store);
        if let Some(policy) = with.policy {
            flags.push("--policy", policy.as_str());
        }
        if let Some(grace) = &with.grace.time {
            flags.push("--grace", &grace.to_string());
        }
        if let Some(steps) = with.max_steps {
            flags.push("--max-steps", &steps.to_string());
        }
        if let Some(on_stop) = with.on_stop {
            flags.push("--on-stop", on_stop.as_str());
        }
        if let Some(mode) = with.permissions.mode {
            flags.push("--mode", mode.as_str());
        }
        for (flag, is_set) in [
            (" --yes", with.permissions.yes),
            (" --deny", with.permissions.deny),
            (" --keep-background", with.keep_background),
        ] {
            if is_set {
                flags.0 += flag;
            }
        }
        flags
    }

    fn path(&mut self, flag: &str, path: Option<&Path>) {
        if let Some(path) = path {
            self.push(flag, &quoted(&path.to_string_lossy()));
        }
    }

    fn push(&mut self, flag: &str, value: &str) {
        self.0.extend([" ", flag, " ", value]);
    }

    /// The command that stops the running work of a session.
    pub(crate) fn stop(&self, id: &SessionId) -> String {
        self.command(&format!("stop {}", short(id.as_str())))
    }

    /// Adds the flags to the command in the hint of a failed turn.
    pub(crate) fn complete_hint(&self, hint: &str) -> String {
        const WORDS: &str = "sessions show last";
        hint.replace(
            &format!("`allstop {WORDS}`"),
            &format!("`{}`", self.command(WORDS)),
        )
    }

    /// The command `allstop` with these words, followed by the flags.
    pub(crate) fn command(&self, words: &str) -> String {
        format!("allstop {words}{}", self.0)
    }
}

/// True if a command that continues the session uses the same model even without flags. This requires that the session
/// remembers the model, and that no environment variable selects another model or another URL.
fn is_remembered(args: &ModelArgs, variables: &[Option<String>; 2]) -> bool {
    let settings = SessionSettings::new(args.model.as_deref(), args.base_url.as_deref(), "");
    let is_whole = settings.model.is_some() || args.model.is_none();
    let [model, url] = variables;
    let is_same = |variable: &Option<String>, chosen: &Option<String>| {
        variable.is_none() || variable == chosen
    };
    is_whole && is_same(model, &args.model) && is_same(url, &args.base_url)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, CliCommand, InstructionArgs};

    fn model(name: &str, base_url: Option<&str>) -> ModelArgs {
        ModelArgs {
            model: Some(name.to_owned()),
            base_url: base_url.map(str::to_owned),
            record: None,
            project_config: ProjectConfigChoice::Ask,
            config: Some("it's mine.toml".into()),
            prompt: InstructionArgs::default(),
        }
    }

    #[test]
    fn the_flags_that_were_given_are_there_again() {
        let store = StoreArgs {
            store: Some("a store.db".into()),
        };
        let flags = SameFlags::of(&model("qwen3:8b", Some("http://x:8080/v1")), &store);
        assert_eq!(
            flags.command("sessions resume 01J"),
            "allstop sessions resume 01J --model qwen3:8b --base-url http://x:8080/v1 \
             --config 'it'\\''s mine.toml' --store 'a store.db'"
        );
        let none = SameFlags::of_store(&StoreArgs { store: None });
        assert_eq!(none.command("sessions list"), "allstop sessions list");
    }

    #[test]
    fn a_store_that_only_a_flag_configures_is_named() {
        let (unnamed, given) = (
            StoreArgs { store: None },
            StoreArgs {
                store: Some("given.db".into()),
            },
        );
        let configured = Some(Path::new("/configured.db"));
        let id = SessionId::new("01M82ZDK405NZBRRXREGE6SJCE");
        let with_file = model("m", None);
        let stop = |model: &ModelArgs, store: &StoreArgs, configured: Option<&Path>| {
            SameFlags::of_used_store(model, store, configured).stop(&id)
        };
        assert_eq!(
            stop(&with_file, &unnamed, configured),
            "allstop stop EGE6SJCE --store /configured.db"
        );
        assert_eq!(
            stop(&with_file, &given, configured),
            "allstop stop EGE6SJCE --store given.db"
        );
        assert_eq!(stop(&with_file, &unnamed, None), "allstop stop EGE6SJCE");
        let with_defaults = ModelArgs {
            config: None,
            ..with_file
        };
        assert_eq!(
            stop(&with_defaults, &unnamed, configured),
            "allstop stop EGE6SJCE"
        );
    }

    #[test]
    fn a_remembered_model_needs_no_flags() {
        let text = |text: &str| Some(text.to_owned());
        let plain = model("m", Some("http://x/v1"));
        assert!(is_remembered(&plain, &[None, None]));
        assert!(is_remembered(&plain, &[text("m"), text("http://x/v1")]));
        // An environment variable would select another model or another URL.
        assert!(!is_remembered(&plain, &[text("other"), None]));
        assert!(!is_remembered(&plain, &[None, text("http://y/v1")]));
        // The session does not remember this URL, because it may contain a key.
        let secret = model("m", Some("http://x/v1?key=1"));
        assert!(!is_remembered(&secret, &[None, None]));
        let none = ModelArgs {
            model: None,
            base_url: None,
            ..plain
        };
        assert!(is_remembered(&none, &[None, None]));
    }

    #[test]
    fn a_chat_is_continued_with_its_own_flags() {
        let given = "chat --model m --system my.md --no-project-instructions --policy steer --grace 500ms --max-steps 7 --on-stop rollback \
                     --yes --keep-background";
        let words = ["allstop"].into_iter().chain(given.split_whitespace());
        let args = Cli::try_parse_from(words).unwrap();
        let CliCommand::Chat(chat) = args.command else {
            panic!("it is a chat");
        };
        let flags = SameFlags::of_chat(&chat.with, &chat.store);
        let without_model = given.replace(" --model m", "");
        assert_eq!(flags.command("chat"), format!("allstop {without_model}"));
    }

    #[test]
    fn a_secret_of_a_url_is_not_printed() {
        let store = StoreArgs { store: None };
        for url in ["http://me:key@x/v1", "http://x/v1?key=secret"] {
            let flags = SameFlags::of(&model("any", Some(url)), &store);
            let command = flags.command("chat");
            assert!(command.contains("--base-url \"$ALLSTOP_BASE_URL\""));
            assert!(!command.contains("key"), "{command}");
        }
    }
}
