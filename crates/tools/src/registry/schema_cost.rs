//! Limits on the time and the stack that the check of a value against a JSON schema may need. A schema comes from an
//! MCP server or a client, and a few hundred bytes of it can ask for 2^34 comparisons.
//!
//! The keywords of a schema form a graph. The check of a value walks this graph: some keywords apply further schemas to
//! the same value (`allOf`, `$ref`), others to its fields and items. [`SchemaCost::of`] refuses a schema that applies
//! too many schemas to one value. [`SchemaCost::check`] counts the walk for one value before the value is checked. If a
//! reference may have several targets, all of them count.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Maximum number of schemas that apply to one value through `allOf`, `anyOf`, `$ref` and the like.
const SCHEMAS_PER_VALUE_MAX: u64 = 10_000;

/// Cost of one schema that is applied to one value. It takes about 0.5 µs.
const SCHEMA_COST: u64 = 64;

/// Cost of one field or item of a value, for each schema that is applied to the value: the library looks up each field
/// in each schema.
const FIELD_COST: u64 = 16;

/// Maximum cost of one check. About 50,000 fields need this cost with an ordinary schema; it takes about 0.1 s.
const COST_MAX: u64 = 200_000 * SCHEMA_COST;

/// Cost of a check that takes less than a millisecond.
const QUICK_COST_MAX: u64 = 1_000 * SCHEMA_COST;

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

/// Addresses of the schemas of JSON Schema itself.
const META_SCHEMAS: [&str; 2] = ["https://json-schema.org/", "http://json-schema.org/"];

/// Schemas that a schema of JSON Schema itself applies to one value, in this number of levels.
const META_SCHEMA_SIZE: usize = 40;
const META_SCHEMA_LEVELS: usize = 4;

/// Target of a `$recursiveRef`, which is no JSON pointer and no anchor.
const RECURSIVE: &str = "#$recursive";

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
    /// Cost of the comparisons with the values of lists, such as `enum`.
    lists: u64,
    /// True if the schema compares texts with a regular expression or a format.
    reads_text: bool,
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
        let mut graph = GraphBuilder {
            is_draft_4: names_draft_4(schema),
            ..GraphBuilder::default()
        };
        graph.add(schema, &[], "")?;
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

    /// Checks that the check of this value is within the limits.
    ///
    /// # Errors
    /// The limit that the check exceeds.
    pub(super) fn check(&self, value: &Value) -> Result<(), TooCostly> {
        self.walk(value, COST_MAX)
    }

    /// True if the check of this value takes less than a millisecond. Takes less than a millisecond itself.
    pub(super) fn is_quick(&self, value: &Value) -> bool {
        self.walk(value, QUICK_COST_MAX).is_ok()
    }

    fn walk(&self, value: &Value, cost_max: u64) -> Result<(), TooCostly> {
        let mut walk = Walk {
            nodes: &self.nodes,
            cost_left: cost_max,
        };
        walk.step(0, value, 0)
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

impl SchemaNode {
    /// Cost of this schema for this value, without the schemas that it refers to.
    fn cost_of(&self, value: &Value) -> u64 {
        let of_value = match value {
            Value::Object(fields) => FIELD_COST * fields.len() as u64,
            Value::Array(items) => FIELD_COST * items.len() as u64,
            Value::String(text) if self.reads_text => 4 * text.len() as u64,
            Value::String(text) => text.len() as u64 / 16,
            _ => 0,
        };
        SCHEMA_COST + self.lists + of_value
    }
}

/// The walk of the check through the graph, without the comparisons.
struct Walk<'a> {
    nodes: &'a [SchemaNode],
    cost_left: u64,
}

impl Walk<'_> {
    fn step(&mut self, node: usize, value: &Value, depth: usize) -> Result<(), TooCostly> {
        let cost = self.nodes[node].cost_of(value);
        self.cost_left = self.cost_left.checked_sub(cost).ok_or(TooCostly::Steps)?;
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

/// True if a part of the schema is written in draft 4, in which `id` names a document.
fn names_draft_4(schema: &Value) -> bool {
    match schema {
        Value::Object(keywords) => keywords.iter().any(|(keyword, value)| match value {
            Value::String(draft) if keyword == "$schema" => draft.contains("draft-04"),
            value => names_draft_4(value),
        }),
        Value::Array(values) => values.iter().any(names_draft_4),
        _ => false,
    }
}

#[derive(Default)]
struct GraphBuilder {
    nodes: Vec<SchemaNode>,
    is_draft_4: bool,
    /// Nodes at each place: the last segment of the base URL of the place, `#`, and its JSON pointer.
    places: HashMap<String, Vec<usize>>,
    /// Nodes with this anchor, of any base URL.
    anchors: HashMap<String, Vec<usize>>,
    /// Node of the schemas of JSON Schema itself, if a reference names one.
    meta_schema: Option<usize>,
    /// References that are not resolved yet: the node, its base URL, and the target.
    references: Vec<(usize, String, String)>,
}

impl GraphBuilder {
    /// Adds a schema at these places: the place in the whole schema, and the place in the innermost document.
    fn add(&mut self, schema: &Value, places: &[String], base: &str) -> Result<usize, String> {
        let node = self.nodes.len();
        self.nodes.push(SchemaNode::default());
        let mut places = places.to_vec();
        let mut base = base;
        let id_of = |keyword| schema.get(keyword).and_then(Value::as_str);
        if self.is_draft_4 && node > 0 && id_of("id").is_some() {
            return Err(
                "it has an `id` inside of a schema of draft 4; use `definitions`".to_owned(),
            );
        }
        match id_of("$id") {
            Some(id) if id.starts_with('#') => {
                let anchor = id.trim_start_matches('#').to_owned();
                self.anchors.entry(anchor).or_default().push(node);
            }
            Some(id) => {
                // A schema with an id is a document: its references begin at this schema.
                base = id;
                places.truncate(1);
                places.push(place_in(id, ""));
            }
            None if node == 0 => places.push(place_in("", "")),
            None => {}
        }
        for place in &places {
            self.places.entry(place.clone()).or_default().push(node);
        }
        if let Value::Object(keywords) = schema {
            self.add_keywords(node, keywords, base, &places)?;
        }
        Ok(node)
    }

    fn add_keywords(
        &mut self,
        node: usize,
        keywords: &Map<String, Value>,
        base: &str,
        places: &[String],
    ) -> Result<(), String> {
        for (keyword, value) in keywords {
            let places = below(places, keyword);
            match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef", Value::String(target)) => {
                    let reference = (node, base.to_owned(), target.clone());
                    self.references.push(reference);
                }
                ("$recursiveRef", Value::String(_)) => {
                    let reference = (node, base.to_owned(), RECURSIVE.to_owned());
                    self.references.push(reference);
                }
                // At the root, each `$recursiveRef` leads to the root. Elsewhere its target depends on the value.
                ("$recursiveAnchor", Value::Bool(true)) if node > 0 => {
                    return Err("it has a `$recursiveAnchor` below its root".to_owned());
                }
                ("$anchor" | "$dynamicAnchor", Value::String(anchor)) => {
                    self.anchors.entry(anchor.clone()).or_default().push(node);
                }
                ("pattern" | "format", _) => self.nodes[node].reads_text = true,
                // Values, not schemas.
                ("enum" | "required", Value::Array(values)) => {
                    self.nodes[node].lists += values.len() as u64;
                }
                ("enum" | "const" | "default" | "examples" | "required" | "type", _) => {}
                ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                    for (name, schema) in schemas {
                        let next = self.add(schema, &below(&places, name), base)?;
                        // A definition is only reached by references.
                        if keyword == "properties" {
                            self.nodes[node].field.insert(name.clone(), next);
                        }
                    }
                }
                (_, Value::Object(_) | Value::Array(_)) => {
                    let schemas = self.add_schemas(keyword, value, &places, base)?;
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
        Ok(())
    }

    /// Adds the schema, the list of schemas or the map of schemas of a keyword.
    fn add_schemas(
        &mut self,
        keyword: &str,
        value: &Value,
        places: &[String],
        base: &str,
    ) -> Result<Vec<usize>, String> {
        let named: Vec<(String, &Value)> = match value {
            Value::Array(schemas) => {
                let schemas = schemas.iter().enumerate();
                schemas
                    .map(|(at, schema)| (at.to_string(), schema))
                    .collect()
            }
            Value::Object(schemas) if MAPS.contains(&keyword) => {
                let schemas = schemas.iter();
                schemas
                    .map(|(name, schema)| (name.clone(), schema))
                    .collect()
            }
            _ => return Ok(vec![self.add(value, places, base)?]),
        };
        let named = named.into_iter();
        named
            .map(|(name, schema)| self.add(schema, &below(places, &name), base))
            .collect()
    }

    fn resolve_references(&mut self) -> Result<(), String> {
        let mut unresolved = HashMap::new();
        for (node, base, target) in std::mem::take(&mut self.references) {
            let targets = self.targets(&base, &target);
            if targets.is_empty() {
                unresolved.insert(node, target);
            }
            self.nodes[node].same_value.extend(targets);
        }
        // A reference that no check reaches, for example in documentation, does no harm.
        let mut reached = vec![false; self.nodes.len()];
        let mut next = vec![0];
        while let Some(at) = next.pop() {
            if std::mem::replace(&mut reached[at], true) {
                continue;
            }
            if let Some(target) = unresolved.get(&at) {
                return Err(format!("its reference {target:?} is not in the schema"));
            }
            let node = &self.nodes[at];
            let lists = [&node.same_value, &node.every_field, &node.every_item];
            next.extend(lists.into_iter().flatten());
            next.extend(node.field.values());
        }
        Ok(())
    }

    /// All nodes to which a reference may lead. Ids are compared by their last segments.
    fn targets(&mut self, base: &str, target: &str) -> Vec<usize> {
        let (document, fragment) = target.split_once('#').unwrap_or((target, ""));
        let in_document = if document.is_empty() { base } else { document };
        if target == RECURSIVE {
            let own = self.places.get(&place_in(base, "")).into_iter();
            return own.flatten().copied().chain([0]).collect();
        }
        let own = if fragment.is_empty() || fragment.starts_with('/') {
            let fragment = percent_decode_str(fragment).decode_utf8_lossy();
            self.places.get(&place_in(in_document, &fragment))
        } else {
            self.anchors.get(fragment)
        };
        let mut targets = own.cloned().unwrap_or_default();
        if META_SCHEMAS
            .iter()
            .any(|address| document.starts_with(address))
        {
            targets.push(self.meta_schema());
        }
        targets
    }

    /// Node with the cost of a schema of JSON Schema itself. Such a schema applies itself to the fields and items of the
    /// value.
    fn meta_schema(&mut self) -> usize {
        if let Some(node) = self.meta_schema {
            return node;
        }
        let root = self.nodes.len();
        let last = root + META_SCHEMA_LEVELS - 1;
        for level in root..=last {
            let deeper = if level < last { Some(level + 1) } else { None };
            self.nodes.push(SchemaNode {
                same_value: deeper.into_iter().collect(),
                ..SchemaNode::default()
            });
        }
        for _ in META_SCHEMA_LEVELS..META_SCHEMA_SIZE {
            let leaf = self.nodes.len();
            self.nodes.push(SchemaNode::default());
            self.nodes[last].same_value.push(leaf);
        }
        self.nodes[last].every_field = vec![root];
        self.nodes[last].every_item = vec![root];
        self.meta_schema = Some(root);
        root
    }
}

/// Place of a JSON pointer in a document. The document is named by the last segment of its id.
fn place_in(document: &str, pointer: &str) -> String {
    let document = document.split('#').next().unwrap_or_default();
    let last = document.rsplit('/').next().unwrap_or(document);
    format!("{last}#{pointer}")
}

/// The places of a name below these places.
fn below(places: &[String], name: &str) -> Vec<String> {
    let name = name.replace('~', "~0").replace('/', "~1");
    places
        .iter()
        .map(|place| format!("{place}/{name}"))
        .collect()
}
