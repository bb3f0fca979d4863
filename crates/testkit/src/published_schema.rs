//! The published JSON schemas. Tests use these schemas to check the output that scripts read.

use std::fmt;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// A compiled schema of the folder `schemas`, or one definition in such a schema.
pub struct PublishedSchema {
    schemas: Schemas,
    root: SchemaIndex,
}

impl PublishedSchema {
    /// Compiles `schemas/NAME.schema.json` and the files that the schema refers to.
    ///
    /// # Panics
    /// Panics if the schema does not exist or is invalid.
    pub fn of(name: &str) -> Self {
        Self::at(&format!("{name}.schema.json"))
    }

    /// Compiles one definition of `schemas/NAME.schema.json`.
    ///
    /// # Panics
    /// Panics if the definition does not exist or is not a schema.
    pub fn of_definition(name: &str, definition: &str) -> Self {
        Self::at(&format!("{name}.schema.json#/$defs/{definition}"))
    }

    fn at(place: &str) -> Self {
        let path = format!("{}/../../schemas/{place}", env!("CARGO_MANIFEST_DIR"));
        let mut schemas = Schemas::new();
        let root = Compiler::new().compile(&path, &mut schemas);
        let root = root.unwrap_or_else(|error| panic!("{path}: {error:#}"));
        Self { schemas, root }
    }

    /// Checks the value.
    ///
    /// # Errors
    /// Returns all violations of the schema.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let checked = self.schemas.validate(value, self.root);
        checked.map_err(|error| format!("{error:#} in {value:#}"))
    }
}

impl fmt::Debug for PublishedSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishedSchema").finish_non_exhaustive()
    }
}
