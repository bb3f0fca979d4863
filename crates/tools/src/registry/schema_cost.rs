//! Limits on the time and the stack that the check of a value against a JSON schema may need. A schema comes from an
//! MCP server or a client, and a few hundred bytes of it can ask for 2^34 comparisons.
//!
//! The keywords of a schema form a graph. The check of a value walks this graph: some keywords apply further schemas to
//! the same value (`allOf`, `$ref`), others to its fields and items. [`SchemaCost::of`] refuses a schema that applies
//! too many schemas to one value. [`SchemaCost::steps`] counts the walk for one value before the value is checked.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Maximum number of schemas that apply to one value through `allOf`, `anyOf`, `$ref` and the like.
const SCHEMAS_PER_VALUE_MAX: u64 = 10_000;

/// Maximum steps of one check. About 50,000 fields need this number with an ordinary schema; it takes about 0.1 s.
const STEPS_MAX: u64 = 200_000;

/// Maximum depth of the walk. The check is recursive: a level takes about 11 kB of a thread's stack in a debug build, and
/// a thread has 2 MB.
const DEPTH_MAX: usize = 100;

/// Keywords with one schema, or a list or map of schemas, for the same value.
const SAME_VALUE: [&str; 10] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
    "$ref",
];

/// Keywords with schemas for every field of an object.
const EVERY_FIELD: [&str; 4] = [
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
];

/// Keywords with schemas for every item of an array.
const EVERY_ITEM: [&str; 5] = [
    "items",
    "prefixItems",
    "contains",
    "additionalItems",
    "unevaluatedItems",
];

/// Keywords with a map of schemas.
const MAPS: [&str; 3] = ["patternProperties", "dependentSchemas", "dependencies"];

/// Addresses of the schemas of JSON Schema itself. Their check takes few steps for each value.
const META_SCHEMAS: (&str, &str) = ("https://json-schema.org/", "http://json-schema.org/");

/// A schema's graph. A node is a schema.
#[derive(Debug)]
pub(super) struct SchemaCost {
    nodes: Vec<SchemaNode>,
}

#[derive(Debug, Default)]
struct SchemaNode {
    same_value: Vec<usize>,
    field: HashMap<String, usize>,
    every_field: Vec<usize>,
    every_item: Vec<usize>,
}

/// A check that exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooCostly {
    Steps,
    Depth,
}

impl SchemaCost {
    /// Creates the graph of a schema.
    ///
    /// # Errors
    /// If the schema exceeds a limit for every value, or has a reference that is not inside the schema.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut graph = GraphBuilder::default();
        graph.add(schema, "");
        graph.resolve_references()?;
        let cost = Self { nodes: graph.nodes };
        cost.check_one_value().map_err(|too| match too {
            TooCostly::Steps => format!(
                "it applies more than {SCHEMAS_PER_VALUE_MAX} schemas to one value; use fewer nested references"
            ),
            TooCostly::Depth => format!(
                "its references are nested in more than {DEPTH_MAX} levels, or form a cycle"
            ),
        })?;
        Ok(cost)
    }

    /// Steps of the check of this value.
    ///
    /// # Errors
    /// If the check exceeds a limit.
    pub(super) fn steps(&self, value: &Value) -> Result<u64, TooCostly> {
        let mut walk = Walk {
            nodes: &self.nodes,
            steps: 0,
        };
        walk.step(0, value, 0)?;
        Ok(walk.steps)
    }

    /// Counts the schemas that apply to one value, for each node as the first one.
    fn check_one_value(&self) -> Result<(), TooCostly> {
        let mut counts = vec![None; self.nodes.len()];
        for node in 0..self.nodes.len() {
            self.count_for_one_value(node, 0, &mut counts)?;
        }
        Ok(())
    }

    fn count_for_one_value(
        &self,
        node: usize,
        depth: usize,
        counts: &mut [Option<u64>],
    ) -> Result<u64, TooCostly> {
        if let Some(count) = counts[node] {
            return Ok(count);
        }
        if depth > DEPTH_MAX {
            return Err(TooCostly::Depth);
        }
        let mut count = 1;
        for &next in &self.nodes[node].same_value {
            count += self.count_for_one_value(next, depth + 1, counts)?;
            if count > SCHEMAS_PER_VALUE_MAX {
                return Err(TooCostly::Steps);
            }
        }
        counts[node] = Some(count);
        Ok(count)
    }
}

/// The walk of the check through the graph, without the comparisons.
struct Walk<'a> {
    nodes: &'a [SchemaNode],
    steps: u64,
}

impl Walk<'_> {
    fn step(&mut self, node: usize, value: &Value, depth: usize) -> Result<(), TooCostly> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(TooCostly::Steps);
        }
        if depth > DEPTH_MAX {
            return Err(TooCostly::Depth);
        }
        let node = &self.nodes[node];
        for &next in &node.same_value {
            self.step(next, value, depth + 1)?;
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    for &next in node.field.get(name).into_iter().chain(&node.every_field) {
                        self.step(next, value, depth + 1)?;
                    }
                }
            }
            Value::Array(items) => {
                for value in items {
                    for &next in &node.every_item {
                        self.step(next, value, depth + 1)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[derive(Default)]
struct GraphBuilder {
    nodes: Vec<SchemaNode>,
    /// Node at each place: the base URL of the place, `#`, and its JSON pointer.
    places: HashMap<String, usize>,
    /// Nodes with this anchor, of any base URL.
    anchors: HashMap<String, Vec<usize>>,
    /// References that are not resolved yet: the node, its base URL, and the target.
    references: Vec<(usize, String, String)>,
}

impl GraphBuilder {
    /// Adds a schema at this place.
    fn add(&mut self, schema: &Value, place: &str) -> usize {
        let node = self.nodes.len();
        self.nodes.push(SchemaNode::default());
        let (mut base, _) = place.split_once('#').unwrap_or((place, ""));
        let mut place = place.to_owned();
        if let Some(id) = schema.get("$id").and_then(Value::as_str) {
            // A schema with an id is a document of its own: its references begin at this schema.
            base = id.trim_end_matches('#');
            self.places.insert(place, node);
            place = format!("{base}#");
        } else if !place.contains('#') {
            place.push('#');
        }
        let base = base.to_owned();
        self.places.insert(place.clone(), node);
        if let Value::Object(keywords) = schema {
            self.add_keywords(node, keywords, &base, &place);
        }
        node
    }

    fn add_keywords(
        &mut self,
        node: usize,
        keywords: &Map<String, Value>,
        base: &str,
        place: &str,
    ) {
        for (keyword, value) in keywords {
            let place = below(place, keyword);
            match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    let reference = (node, base.to_owned(), target.clone());
                    self.references.push(reference);
                }
                ("$anchor" | "$dynamicAnchor", Value::String(anchor)) => {
                    self.anchors.entry(anchor.clone()).or_default().push(node);
                }
                // Values, not schemas.
                ("enum" | "const" | "default" | "examples" | "required" | "type", _) => {}
                ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                    for (name, schema) in schemas {
                        let next = self.add(schema, &below(&place, name));
                        // A definition is only reached by references.
                        if keyword == "properties" {
                            self.nodes[node].field.insert(name.clone(), next);
                        }
                    }
                }
                (_, Value::Object(_) | Value::Array(_)) => {
                    let schemas = self.add_schemas(keyword, value, &place);
                    let own = &mut self.nodes[node];
                    if SAME_VALUE.contains(&keyword.as_str()) {
                        own.same_value.extend(schemas);
                    } else if EVERY_FIELD.contains(&keyword.as_str()) {
                        own.every_field.extend(schemas);
                    } else if EVERY_ITEM.contains(&keyword.as_str()) {
                        own.every_item.extend(schemas);
                    }
                    // The value of another keyword is only reached by references.
                }
                _ => {}
            }
        }
    }

    /// Adds the schema, the list of schemas or the map of schemas of a keyword.
    fn add_schemas(&mut self, keyword: &str, value: &Value, place: &str) -> Vec<usize> {
        match value {
            Value::Array(schemas) => {
                let schemas = schemas.iter().enumerate();
                let add = |(at, schema)| self.add(schema, &format!("{place}/{at}"));
                schemas.map(add).collect()
            }
            Value::Object(schemas) if MAPS.contains(&keyword) => {
                let add = |(name, schema): (&String, _)| self.add(schema, &below(place, name));
                schemas.iter().map(add).collect()
            }
            _ => vec![self.add(value, place)],
        }
    }

    fn resolve_references(&mut self) -> Result<(), String> {
        for (node, base, target) in std::mem::take(&mut self.references) {
            let (document, fragment) = target.split_once('#').unwrap_or((&target, ""));
            if document.starts_with(META_SCHEMAS.0) || document.starts_with(META_SCHEMAS.1) {
                continue;
            }
            let document = if document.is_empty() {
                &base
            } else {
                self.document(document)
            };
            let targets = if fragment.is_empty() || fragment.starts_with('/') {
                let fragment = percent_decode_str(fragment).decode_utf8_lossy();
                let place = self.places.get(&format!("{document}#{fragment}"));
                place.copied().into_iter().collect()
            } else {
                self.anchors.get(fragment).cloned().unwrap_or_default()
            };
            if targets.is_empty() {
                return Err(format!("its reference {target:?} is not in the schema"));
            }
            self.nodes[node].same_value.extend(targets);
        }
        Ok(())
    }

    /// The id of the document that a reference names. A relative id is compared by its last segment.
    fn document<'a>(&'a self, named: &'a str) -> &'a str {
        let last = |id: &'a str| id.rsplit('/').next().unwrap_or(id);
        let ids = || {
            self.places
                .keys()
                .filter_map(|place| place.strip_suffix('#'))
        };
        if ids().any(|id| id == named) {
            return named;
        }
        ids().find(|id| last(id) == last(named)).unwrap_or(named)
    }
}

/// The place of a name below a place, as a JSON pointer.
fn below(place: &str, name: &str) -> String {
    format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
}
