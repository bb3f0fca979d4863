//! `allstop schema NAME`: the JSON Schemas of files that scripts read and people write.

use allstop_terminal::{Styled, TextTable};
use clap::ValueEnum;

/// A published JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaName {
    /// The receipt of a stop
    Receipt,
    /// The configuration file, `allstop.toml`
    Config,
    /// The object that `run --json` prints
    Envelope,
    /// The lines that `run --stream-json` and `watch --json` print
    Events,
    /// A script for `--model script:FILE`
    Script,
    /// Messages of `allstop copilot` beyond the protocol of the SDKs
    Copilot,
    /// A failure of any command under `--json`
    Error,
    /// The object that `ps --json` prints
    Ps,
    /// The object that `stop ID --json` prints
    Stop,
    /// The object that `stop --all --json` prints
    StopAll,
    /// The object that `sessions list --json` prints
    Sessions,
    /// The object that `sessions show --json` prints
    Session,
    /// The object that `sessions export --json` prints
    Transcript,
    /// The object that `doctor --json` prints
    Doctor,
    /// The object that `demo --json` prints
    Demo,
    /// The object that `store check --json` prints
    StoreCheck,
    /// The object that `tasks list --json` prints
    Tasks,
    /// The object that `tasks show --json` prints
    Task,
    /// The object that `tasks stop --json` prints
    TaskStop,
    /// The lines that `tasks watch --json` prints
    TaskEvent,
    /// The object that `workers list --json` prints
    Workers,
    /// The object that `workers dead --json` prints
    DeadLetters,
    /// The object that `workers drain --json` prints
    WorkerDrain,
    /// The object that `workers redrive --json` prints
    Redrive,
}

impl SchemaName {
    /// Names and contents of all schemas, one line each.
    pub(crate) fn list() -> Styled {
        let mut table = TextTable::default();
        for name in Self::value_variants() {
            if let Some(value) = name.to_possible_value() {
                let help = value.get_help().map(ToString::to_string);
                table.row([
                    Styled::text(value.get_name()),
                    Styled::text(&help.unwrap_or_default()),
                ]);
            }
        }
        table.render()
    }

    /// The schema, in JSON.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Receipt => include_str!("../../schemas/receipt.schema.json"),
            Self::Config => include_str!("../../schemas/config.schema.json"),
            Self::Envelope => include_str!("../../schemas/envelope.schema.json"),
            Self::Events => include_str!("../../schemas/events.schema.json"),
            Self::Script => include_str!("../../schemas/script.schema.json"),
            Self::Copilot => include_str!("../../schemas/copilot.schema.json"),
            Self::Error => include_str!("../../schemas/error.schema.json"),
            Self::Ps => include_str!("../../schemas/ps.schema.json"),
            Self::Stop => include_str!("../../schemas/stop.schema.json"),
            Self::StopAll => include_str!("../../schemas/stop-all.schema.json"),
            Self::Sessions => include_str!("../../schemas/sessions.schema.json"),
            Self::Session => include_str!("../../schemas/session.schema.json"),
            Self::Transcript => include_str!("../../schemas/transcript.schema.json"),
            Self::Doctor => include_str!("../../schemas/doctor.schema.json"),
            Self::Demo => include_str!("../../schemas/demo.schema.json"),
            Self::StoreCheck => include_str!("../../schemas/store-check.schema.json"),
            Self::Tasks => include_str!("../../schemas/tasks.schema.json"),
            Self::Task => include_str!("../../schemas/task.schema.json"),
            Self::TaskStop => include_str!("../../schemas/task-stop.schema.json"),
            Self::TaskEvent => include_str!("../../schemas/task-event.schema.json"),
            Self::Workers => include_str!("../../schemas/workers.schema.json"),
            Self::DeadLetters => include_str!("../../schemas/dead-letters.schema.json"),
            Self::WorkerDrain => include_str!("../../schemas/worker-drain.schema.json"),
            Self::Redrive => include_str!("../../schemas/redrive.schema.json"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_document::DocumentSchema;

    #[test]
    fn each_schema_is_the_published_file_of_its_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas");
        let files = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(SchemaName::value_variants().len(), files);
        for name in SchemaName::value_variants() {
            let shown = name.to_possible_value().unwrap();
            let file = format!("{folder}/{}.schema.json", shown.get_name());
            assert_eq!(std::fs::read_to_string(file).unwrap(), name.text());
        }
    }

    /// Each object that a command prints has a published schema with its id and its name.
    #[test]
    fn each_document_has_its_schema() {
        for document in DocumentSchema::ALL {
            let id = document.id();
            let name = id.trim_start_matches("allstop.").trim_end_matches("/1");
            let schema = SchemaName::from_str(name, false).expect(id);
            let schema: serde_json::Value = serde_json::from_str(schema.text()).unwrap();
            assert_eq!(schema["properties"]["schema"]["const"], id);
        }
    }
}
