//! Input of a run, read before any work starts: the configuration, in which flags override the files, and the prompts.

use std::io::IsTerminal as _;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Images;
use allstop_core::counted::counted;
use allstop_model::known_model;
use allstop_runtime::{Config, Definitions, SystemOptions};
use allstop_scope::{GRACE_DEFAULT, WorkCx};
use allstop_session::OnBackgroundEnd;
use allstop_tools::Prompter;

use super::output_schema;
use super::stdin::read_stdin;
use crate::args::{RunArgs, STDIN};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::image_file;
use crate::image_names::{is_image_name, names, sent_as_text};
use crate::start::options::{
    HostOptions, config_of, config_with_model, note_unusable_servers, system,
};
use crate::start::project::TrustedProject;
use crate::start::{self, StartFailure, StartReporter};
use crate::supervise::Supervisor;
use crate::typed_command::TypedCommand;

/// Maximum bytes of a prompt. No model accepts a longer prompt, so a longer input is a mistake, such as a log file or
/// an image.
const PROMPT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Input of a run.
pub(super) struct Inputs {
    pub(super) prompts: Vec<Arc<str>>,
    /// Images of the first prompt.
    pub(super) images: Images,
    pub(super) system: SystemOptions,
    pub(super) grace: Duration,
    pub(super) timeout: Option<Duration>,
}

/// Reads the configuration and the prompts.
pub(super) async fn read(
    args: RunArgs,
    host: &ProcessHost,
    project: TrustedProject,
    prompter: Arc<dyn Prompter>,
    supervisor: &mut Supervisor,
) -> Result<Inputs, StartFailure> {
    let given = HostOptions::of(host);
    start::read(given.scopes.clone(), supervisor, move |cx| {
        let mut config = config(&args, &given, &project)?;
        let definitions = start::definitions::load(&project.definitions, &given.reporter);
        let answer = args.output_schema.as_deref().map(output_schema::read);
        let answer = answer.transpose().map_err(StartFailure::input)?;
        let images = images(&args, &config).map_err(StartFailure::input)?;
        let prompts = prompts(&args, &definitions, cx, &given.reporter);
        let prompts = prompts.map_err(StartFailure::input)?;
        let timeout = config.deadlines.run.take().map(Duration::from);
        let grace = config.deadlines.grace.map_or(GRACE_DEFAULT, Duration::from);
        // A run has exactly one turn per prompt. So the end of background work begins no further turn.
        config.session.on_background_end = Some(OnBackgroundEnd::Note);
        let record = args.model.record.clone();
        let store = ProcessHost::store(&args.session.store, config.store.path.clone())?;
        note_unusable_servers(&config, &given.reporter);
        let mut system = system(store, record, given, config, prompter);
        system.definitions = definitions;
        system.answer = answer;
        Ok(Inputs {
            prompts,
            images,
            system,
            grace,
            timeout,
        })
    })
    .await
}

/// Reads the prompts, as text. Piped input that no prompt names with `-` becomes part of the first prompt.
fn prompts(
    args: &RunArgs,
    definitions: &Definitions,
    cx: &WorkCx,
    reporter: &StartReporter,
) -> Result<Vec<Arc<str>>, CliError> {
    let waits = || {
        reporter.note(
            "waiting for the end of standard input, which becomes part of the prompt · `</dev/null` gives none",
        );
    };
    let read_stdin = || read_stdin(PROMPT_BYTES_MAX as u64 + 1, cx, &waits);
    let turns = args.prompts.turns()?;
    let is_read_by_name = turns.iter().any(|prompt| prompt == STDIN);
    let mut prompts = Vec::new();
    for prompt in turns {
        let prompt_is_typed = prompt != STDIN;
        let bytes = if prompt == STDIN {
            read_stdin()?
        } else {
            std::os::unix::ffi::OsStringExt::into_vec(prompt)
        };
        // Images need no text.
        let text = if prompts.is_empty() && bytes.is_empty() && !args.prompts.images.is_empty() {
            "".into()
        } else {
            prompt_text(bytes)?
        };
        if args.prompts.images.is_empty() && prompt_is_typed {
            for name in names(&text).iter().filter(|name| is_image_name(name)) {
                reporter.note(&sent_as_text(name));
            }
        }
        prompts.push(if prompt_is_typed {
            expanded(&text, definitions, reporter)
        } else {
            text
        });
    }
    if !is_read_by_name && !std::io::stdin().is_terminal() {
        let piped = read_stdin()?;
        if let Some(first) = prompts
            .first_mut()
            .filter(|_| !piped.trim_ascii().is_empty())
        {
            reporter.note(&format!(
                "standard input is part of the prompt: {}",
                counted(piped.len() as u64, "byte", "bytes")
            ));
            let piped = prompt_text(piped)?;
            *first = with_piped(first, &piped);
        }
    }
    Ok(prompts)
}

/// Reads the images of the first prompt.
fn images(args: &RunArgs, config: &Config) -> Result<Images, CliError> {
    let paths = &args.prompts.images;
    let model = &config.model;
    if let Some(name) = model.name.as_deref().filter(|_| !paths.is_empty())
        && known_model(name, model.base_url.as_deref()).is_some_and(|known| known.is_text_only)
    {
        return Err(CliError::usage(format!("model `{name}` takes no images"))
            .hint("choose another model with --model, or omit --image"));
    }
    let images = paths.iter().map(|path| image_file::read(path));
    let images = images.collect::<Result<Vec<_>, _>>().map_err(|why| {
        CliError::usage(why).hint("--image needs the path of a PNG, JPEG, GIF or WebP file")
    })?;
    Images::new(images).map_err(|error| CliError::usage(error.to_string()))
}

/// The prompt of the command that a typed prompt names, or the prompt itself.
fn expanded(typed: &Arc<str>, definitions: &Definitions, reporter: &StartReporter) -> Arc<str> {
    match TypedCommand::find(typed, definitions) {
        TypedCommand::Expanded { name, text } => {
            reporter.note(&format!(
                "/{name} is a command from a file; its prompt is sent"
            ));
            text.into()
        }
        TypedCommand::Unknown(name) => {
            let known: Vec<String> = definitions
                .commands
                .keys()
                .map(|it| format!("/{it}"))
                .collect();
            reporter.note(&format!(
                "/{name} is sent as text: no such command; known commands: {}",
                known.join(" ")
            ));
            Arc::clone(typed)
        }
        TypedCommand::Literal(text) => text.into(),
        TypedCommand::None => Arc::clone(typed),
    }
}

/// The prompt, and below it the piped input. The tags tell the model where the input begins and ends.
fn with_piped(prompt: &str, piped: &str) -> Arc<str> {
    let piped = piped.strip_suffix('\n').unwrap_or(piped);
    format!("{prompt}\n\n<stdin>\n{piped}\n</stdin>").into()
}

fn prompt_text(bytes: Vec<u8>) -> Result<Arc<str>, CliError> {
    if bytes.len() > PROMPT_BYTES_MAX {
        return Err(CliError::usage(format!(
            "the prompt is longer than {} MiB",
            PROMPT_BYTES_MAX / (1024 * 1024)
        ))
        .hint("write the text to a file, and ask the model to read the file"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::usage(format!("the prompt is not UTF-8: byte {at} is invalid"))
            .hint("convert it: iconv -t utf-8")
    })?;
    if text.trim().is_empty() {
        return Err(
            CliError::usage("the prompt is empty").hint("describe the task: allstop run \"…\"")
        );
    }
    Ok(text.into())
}

/// The user's configuration, overridden by the project's configuration and then by the flags.
fn config(
    args: &RunArgs,
    given: &HostOptions,
    project: &TrustedProject,
) -> Result<Config, CliError> {
    let mut config = match args.session.choice.named() {
        // The continued session may remember its model, so the configuration need not name one.
        Some(_) => config_of(&args.model, project)?,
        None => config_with_model(&args.model, "run", given, project)?,
    };
    args.permissions.set_mode(&mut config);
    let flags = &args.limits;
    config.deadlines.run = flags.timeout.or(config.deadlines.run);
    config.deadlines.grace = flags.grace.time.or(config.deadlines.grace);
    let limits = &mut config.limits;
    limits.max_steps = flags.max_steps.map_or(limits.max_steps, NonZero::get);
    limits.max_turns = flags.max_turns.map(NonZero::get).or(limits.max_turns);
    let tokens = flags.max_budget_tokens.map(NonZero::get);
    limits.max_budget_tokens = tokens.or(limits.max_budget_tokens);
    config.on_stop = flags.on_stop.or(config.on_stop);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_prompts_name_their_problem() {
        for (bytes, expected) in [
            (
                b"caf\xe9".to_vec(),
                "the prompt is not UTF-8: byte 3 is invalid",
            ),
            (b"  \n".to_vec(), "the prompt is empty"),
            (
                vec![b'x'; PROMPT_BYTES_MAX + 1],
                "the prompt is longer than 32 MiB",
            ),
        ] {
            let problem = prompt_text(bytes).unwrap_err();
            assert_eq!((problem.message.as_str(), problem.code()), (expected, 2));
            assert!(problem.hint.is_some());
        }
        assert_eq!(&*prompt_text(b"hello".to_vec()).unwrap(), "hello");
    }
}
