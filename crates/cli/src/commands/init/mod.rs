//! `allstop init`: asks the user for the model and the permissions, and writes the configuration file.

mod choices;

use std::path::Path;
use std::time::Instant;

use allstop_scope::GRACE_DEFAULT;
use allstop_terminal::{LinePrompt, Styled, TextRole, styled};
use allstop_tools::permission::PermissionMode;

use crate::args::InitArgs;
use crate::config_edit;
use crate::control::Control;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{ProcessHost, variable};
use crate::offered_models::{numbered_list, offered_models};
use crate::start::default_model::DEFAULT_MODELS;
use crate::supervise::Supervisor;
use choices::{MODES, ModelSource, describe_mode, text};

/// Runs the command.
///
/// # Cancel safety
/// Dropping the future before the file is written changes nothing.
pub(crate) async fn init(args: &InitArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let signals = host.signals()?;
    let path = args.config.clone().or_else(ProcessHost::config_path);
    let path =
        path.ok_or_else(|| CliError::usage("HOME is not set").hint("name a file: --config FILE"))?;
    let Some(prompt) = LinePrompt::of_process(&host.output, &host.terminal) else {
        let hint = format!(
            "write {} yourself, for example:\n[model]\nname = \"gpt-5-mini\"\n`allstop schema config` describes every key, and `allstop doctor` checks the file",
            path.display()
        );
        return Err(CliError::usage("no terminal for questions").hint(hint));
    };
    let mut supervisor = Supervisor::new(signals, Control::new(GRACE_DEFAULT));
    let mut questions = InitQuestions { prompt };
    let written = tokio::select! {
        biased;
        _effect = supervisor.next() => None,
        written = questions.write(&path) => Some(written),
    };
    // Restore the terminal before any further output.
    drop(questions);
    match written {
        None => Ok(Exit {
            code: supervisor
                .control
                .exit_code(supervisor.control.stop_reason()),
            output_wait: supervisor.control.output_wait(Instant::now()),
        }),
        Some(Err(InitEnd::Failed(problem))) => Err(problem),
        Some(Err(InitEnd::Unanswered)) => Err(CliError::failure("nothing was written")),
        Some(Ok(())) => Ok(Exit::from(0)),
    }
}

/// Reasons why no configuration file is written.
enum InitEnd {
    /// The user declined, or the terminal is gone.
    Unanswered,
    Failed(CliError),
}

struct InitQuestions {
    prompt: LinePrompt,
}

impl InitQuestions {
    async fn write(&mut self, path: &Path) -> Result<(), InitEnd> {
        let source = self.source().await?;
        let permissions = self.permissions().await?;
        let text = text(&source, permissions);
        self.prompt.show(Styled::text(&format!("\n{text}")));
        let shown = path.display().to_string();
        // Enter writes a new file, and never replaces a file.
        let is_written = if path.exists() {
            let question = format!("{shown} exists. Replace all of it?");
            self.choose(&question, &["no", "yes"], 0).await? == 1
        } else {
            let question = format!("Write this to {shown}?");
            self.choose(&question, &["yes", "no"], 0).await? == 0
        };
        if !is_written {
            return Err(InitEnd::Unanswered);
        }
        config_edit::write(path, &text).map_err(InitEnd::Failed)?;
        let said = format!(
            "{shown} is written. `allstop doctor --online` checks it; `allstop` opens a chat"
        );
        self.prompt.show(Styled::text(&said));
        Ok(())
    }

    async fn source(&mut self) -> Result<ModelSource, InitEnd> {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        // Models whose API key is set come first, because these models work without further settings.
        let (with_key, without): (Vec<_>, Vec<_>) = DEFAULT_MODELS
            .into_iter()
            .partition(|known| is_set(known.key));
        let mut options: Vec<String> = Vec::new();
        options.extend(
            with_key
                .iter()
                .map(|known| format!("{}: {} is set", known.model, known.key)),
        );
        options.push("your own server: llama.cpp, Ollama, vLLM".to_owned());
        options.extend(
            without
                .iter()
                .map(|known| format!("{}: needs {}", known.model, known.key)),
        );
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let chosen = self.choose("Which model?", &options, 0).await?;
        let mut providers = with_key.iter().chain(&without);
        if chosen == with_key.len() {
            let base_url = self.server_url().await?;
            let name = self.model_of(None, Some(&base_url)).await?;
            return Ok(ModelSource {
                name,
                base_url: Some(base_url),
            });
        }
        let at = if chosen < with_key.len() {
            chosen
        } else {
            chosen - 1
        };
        let default = providers
            .nth(at)
            .map_or(DEFAULT_MODELS[0].model, |known| known.model);
        let name = self.model_of(Some(default), None).await?;
        Ok(ModelSource {
            name,
            base_url: None,
        })
    }

    /// Asks for the URL of a server, until the answer is one.
    async fn server_url(&mut self) -> Result<String, InitEnd> {
        loop {
            let given = self
                .line("URL of the server", "http://127.0.0.1:8080/v1")
                .await?;
            let is_http =
                |url: url::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
            if given.parse().is_ok_and(is_http) {
                return Ok(given);
            }
            self.prompt.show(Styled::text(&format!(
                "  `{given}` is no URL of a server; begin with http:// or https://"
            )));
        }
    }

    /// Asks for the model, by its name or by its number in the list that the provider or server offers.
    async fn model_of(
        &mut self,
        default: Option<&str>,
        base_url: Option<&str>,
    ) -> Result<String, InitEnd> {
        let style = self.prompt.style();
        let mut offered = Vec::new();
        match offered_models(default, base_url).await {
            Ok(found) => offered = found,
            Err(reason) => {
                let said = format!("  the list of models is not available: {reason}");
                self.prompt.show(style.paint(TextRole::Dim, said.as_str()));
            }
        }
        let first = offered.first().map(String::as_str);
        let default = default.or(first).unwrap_or("default").to_owned();
        if offered.is_empty() {
            return self.line("Name of the model", &default).await;
        }
        self.prompt.show(Styled::text(&numbered_list(&offered)));
        let question = "Number or name of the model";
        loop {
            let given = self.line(question, &default).await?;
            let Ok(number) = given.parse::<usize>() else {
                return Ok(given);
            };
            if let Some(name) = number.checked_sub(1).and_then(|at| offered.get(at)) {
                return Ok(name.clone());
            }
            let said = format!("  the list has the numbers 1 to {}", offered.len());
            self.prompt.show(style.paint(TextRole::Dim, said.as_str()));
        }
    }

    async fn permissions(&mut self) -> Result<PermissionMode, InitEnd> {
        let options = MODES.map(describe_mode);
        let chosen = self
            .choose("What may the agent do without a question?", &options, 0)
            .await?;
        Ok(MODES[chosen])
    }

    /// Asks for one of several options; Enter selects the default.
    async fn choose(
        &mut self,
        question: &str,
        options: &[&str],
        default: usize,
    ) -> Result<usize, InitEnd> {
        let style = self.prompt.style();
        let mut lines = Styled::default();
        lines.push_line(&styled![style.paint(TextRole::Warning, "? "), question]);
        for (at, option) in options.iter().enumerate() {
            lines.push_line(&styled![format_args!("  {} ", at + 1), *option]);
        }
        self.prompt.begin();
        self.prompt.show(lines);
        let prefix = styled![
            format_args!("  number [{}] ", default + 1),
            style.pick("›", ">"),
            " "
        ];
        let mut line = self.prompt.ask(prefix.clone()).await;
        loop {
            let given = line.ok_or(InitEnd::Unanswered)?;
            match (given.trim(), given.trim().parse::<usize>()) {
                ("", _) => return Ok(default),
                (_, Ok(number)) if (1..=options.len()).contains(&number) => return Ok(number - 1),
                _ => {
                    let said = format!("  type a number from 1 to {}; Ctrl-C quits", options.len());
                    self.prompt.show(style.paint(TextRole::Dim, said.as_str()));
                }
            }
            line = self.prompt.ask(prefix.clone()).await;
        }
    }

    /// Asks for a line of text; Enter selects the default.
    async fn line(&mut self, question: &str, default: &str) -> Result<String, InitEnd> {
        let style = self.prompt.style();
        let sign = style.pick("›", ">");
        let prefix = styled!["  ", question, format_args!(" [{default}] "), sign, " "];
        self.prompt.begin();
        let given = self.prompt.ask(prefix).await.ok_or(InitEnd::Unanswered)?;
        let given = given.trim();
        Ok(if given.is_empty() { default } else { given }.to_owned())
    }
}
