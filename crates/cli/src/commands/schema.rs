//! `allstop schema NAME`: the JSON Schemas of files that scripts read and people write.

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
    /// The lines that `run --stream-json` prints
    Events,
    /// A script for `--model script:FILE`
    Script,
    /// Messages of `allstop copilot` beyond the protocol of the SDKs
    Copilot,
}

impl SchemaName {
    /// The schema, in JSON.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Receipt => include_str!("../../../../schemas/receipt.schema.json"),
            Self::Config => include_str!("../../../../schemas/config.schema.json"),
            Self::Envelope => include_str!("../../../../schemas/envelope.schema.json"),
            Self::Events => include_str!("../../../../schemas/events.schema.json"),
            Self::Script => include_str!("../../../../schemas/script.schema.json"),
            Self::Copilot => include_str!("../../../../schemas/copilot.schema.json"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
