//! JSON schemas of argument structs, in the form that model providers accept.

use std::sync::Arc;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Returns the schema of `A` without references to other schemas. Omits parts that only cost tokens (`$schema`,
/// titles). Also omits formats, because providers refuse some formats (`uint64`).
pub fn schema_of<A: JsonSchema>() -> Arc<Value> {
    let trim = RecursiveTransform(|schema: &mut Schema| {
        if let Some(keywords) = schema.as_object_mut() {
            keywords.shift_remove("format");
            keywords.shift_remove("title");
        }
    });
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings
        .with_transform(trim)
        .into_generator()
        .into_root_schema_for::<A>();
    Arc::new(schema.to_value())
}
