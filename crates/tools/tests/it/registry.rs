//! Names, schemas and arguments of tools.

use std::sync::Arc;

use allstop_core::Effect;
use allstop_tools::{
    RegistryError, Tool, ToolError, ToolInvocation, ToolOutput, ToolRegistry, ToolSpec,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::support::Session;

#[derive(Debug)]
struct Named(ToolSpec);

impl Named {
    fn tool(name: &str, schema: Value) -> Arc<dyn Tool> {
        Arc::new(Self(
            ToolSpec::new(name, "does nothing", Arc::new(schema))
                .effect(Effect::ReadOnly)
                .parallel(true),
        ))
    }
}

impl Tool for Named {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async { Ok("".into()) })
    }
}

#[test]
fn duplicate_names_bad_names_and_bad_schemas_are_refused() {
    let mut registry = ToolRegistry::new();
    registry.register(Named::tool("a", json!({}))).unwrap();
    assert!(matches!(
        registry.register(Named::tool("a", json!({}))),
        Err(RegistryError::Duplicate { .. })
    ));
    for name in ["", "a b", "ä", &"x".repeat(65)] {
        assert!(
            matches!(
                registry.register(Named::tool(name, json!({}))),
                Err(RegistryError::Name { .. })
            ),
            "{name}"
        );
    }
    let schema = json!({"type": "no such type"});
    assert!(matches!(
        registry.register(Named::tool("b", schema)),
        Err(RegistryError::Schema { .. })
    ));
    assert_eq!(
        registry.specs().map(|spec| &*spec.name).collect::<Vec<_>>(),
        ["a"]
    );
}

#[test]
fn known_schema_is_compiled_at_the_first_call() {
    let mut registry = ToolRegistry::new();
    let needs_n = json!({"type": "object", "required": ["n"]});
    registry.register_known(Named::tool("a", needs_n)).unwrap();
    assert!(matches!(
        registry.register_known(Named::tool("a", json!({}))),
        Err(RegistryError::Duplicate { .. })
    ));
    let wrong = json!({"type": "no such type"});
    registry.register_known(Named::tool("b", wrong)).unwrap();
    let check = |tool, arguments| registry.find(tool).unwrap().check_arguments(&arguments);
    assert!(check("a", json!({"n": 1})).is_ok());
    let missing = check("a", json!({})).unwrap_err();
    assert!(missing.message.contains("`n`"), "{}", missing.message);
    let invalid = check("b", json!({})).unwrap_err();
    assert!(invalid.message.contains("schema"), "{}", invalid.message);
}

#[test]
fn error_for_an_unknown_tool_lists_the_known_ones() {
    let mut registry = ToolRegistry::new();
    registry.register(Named::tool("read", json!({}))).unwrap();
    registry.register(Named::tool("write", json!({}))).unwrap();
    assert_eq!(
        registry.find("raed").unwrap_err().message,
        r#"unknown tool "raed"; known tools: read, write"#
    );
}

#[tokio::test]
async fn wrong_arguments_are_named_and_the_tool_does_not_run() {
    let session = Session::new();
    let check = |tool: &str, arguments: Value| {
        session
            .tools
            .get(tool)
            .unwrap()
            .check_arguments(&arguments)
            .map_err(|error| error.message)
    };
    for (tool, arguments, says) in [
        ("read", json!({}), "missing field `path`"),
        ("read", json!({"path": 7}), "`path` must be of type string"),
        (
            "read",
            json!({"path": "a", "lines": 3}),
            "unknown field `lines`",
        ),
        (
            "read",
            json!({"path": "a", "offset": "3"}),
            "`offset` must be of type",
        ),
        ("read", json!({"path": "a", "offset": 0}), "`offset`: "),
        ("read", json!("a"), "the arguments must be of type object"),
        ("read", json!(null), "the arguments must be of type object"),
        ("write", json!({"path": "a"}), "missing field `content`"),
        (
            "edit",
            json!({"path": "a", "old": "", "new": ""}),
            "`old`: ",
        ),
        (
            "shell",
            json!({"command": "x", "timeout_s": -1}),
            "`timeout_s`: ",
        ),
        ("background", json!({"action": "explode"}), "`action`: "),
    ] {
        let error = check(tool, arguments.clone()).unwrap_err();
        assert!(
            error.contains(says),
            "{tool} {arguments}: {error:?} does not say {says:?}"
        );
    }
    assert_eq!(
        check("read", json!({"path": "a", "offset": 3, "limit": null})),
        Ok(())
    );
    assert_eq!(
        check("shell", json!({"command": "x", "timeout_s": 1})),
        Ok(())
    );
}

#[test]
fn schema_reads_no_file_and_its_expressions_may_look_ahead() {
    let given = |schema: Value| {
        let mut tools = ToolRegistry::new();
        let registered = tools.register(Named::tool("t", schema));
        registered
            .map(|()| tools)
            .map_err(|error| error.to_string())
    };
    let file = given(json!({"$ref": "file:///etc/hostname"}));
    assert!(file.unwrap_err().contains("not in the schema"));
    let name = json!({"type": "string", "pattern": "^(?!x)", "minLength": 2});
    let tools =
        given(json!({"properties": {"name": name, "pattern": {"type": "integer"}}})).unwrap();
    let check = |arguments: Value| tools.get("t").unwrap().check_arguments(&arguments).is_ok();
    assert!(check(json!({"name": "xx", "pattern": 1})));
    assert!(!check(json!({"name": "x"})) && !check(json!({"pattern": "x"})));
}

#[tokio::test]
async fn error_about_a_huge_argument_is_small() {
    let session = Session::new();
    let huge = "x".repeat(10_000_000);
    let read = session.tools.get("read").unwrap();
    for arguments in [
        json!({"path": [huge]}),
        json!({"path": "a", (huge.clone()): 1}),
        json!({"path": "a", "offset": huge}),
        json!({(huge.clone()): {"a": huge}}),
    ] {
        let error = read.check_arguments(&arguments).unwrap_err();
        assert!(error.message.len() < 1_000, "{} bytes", error.message.len());
    }
}

#[tokio::test]
async fn schemas_have_no_keywords_that_providers_refuse() {
    let session = Session::new();
    for spec in session.tools.specs() {
        let text = spec.input_schema.to_string();
        for word in ["$schema", "$ref", "$defs", "\"format\"", "\"title\""] {
            assert!(!text.contains(word), "{}: {text}", spec.name);
        }
        assert_eq!(spec.input_schema["type"], "object", "{}", spec.name);
        assert_eq!(
            spec.input_schema["additionalProperties"], false,
            "{}",
            spec.name
        );
    }
}

/// Registers a tool with this schema.
fn registered(schema: Value) -> Result<ToolRegistry, String> {
    let mut tools = ToolRegistry::new();
    let registered = tools.register(Named::tool("hostile", schema));
    let registered = registered.map_err(|error| error.to_string());
    registered.map(|()| tools)
}

/// Definitions `d0` to `dN`. Each applies the next one in two places.
fn doubling(levels: usize, twice: impl Fn(Value) -> Value) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), twice(next));
    }
    definitions.insert(format!("d{levels}"), json!({"type": "object"}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

#[test]
fn schema_that_needs_exponential_time_is_refused_with_the_name_of_its_tool() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let schema = doubling(34, |next| json!({keyword: [next.clone(), next]}));
        let error = registered(schema).unwrap_err();
        assert!(error.contains("\"hostile\""), "{error}");
        assert!(error.contains("more than 10000 schemas"), "{error}");
    }
    let chain = doubling(5_000, |next| json!({"allOf": [next]}));
    let error = registered(chain).unwrap_err();
    assert!(error.contains("nested in more than 100 levels"), "{error}");
    let cycle = registered(json!({"$ref": "#"})).unwrap_err();
    assert!(cycle.contains("form a cycle"), "{cycle}");
}

#[test]
fn arguments_that_a_recursive_schema_checks_exponentially_are_refused() {
    let tree = json!({
        "allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]
    });
    let tools = registered(tree).unwrap();
    let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let check = |arguments: &Value| tools.get("hostile").unwrap().check_arguments(arguments);
    assert!(check(&nested(8)).is_ok());
    let error = check(&nested(30)).unwrap_err().message;
    assert!(error.contains("`hostile` are too large"), "{error}");
}

#[test]
fn deepest_check_that_is_allowed_fits_the_stack_of_a_thread() {
    let list = json!({"properties": {"a": {"$ref": "#"}}});
    let tools = registered(list).unwrap();
    let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let check = |levels| {
        let tool = tools.get("hostile").unwrap();
        tool.check_arguments(&nested(levels))
    };
    assert!(check(50).is_ok());
    let error = check(51).unwrap_err().message;
    assert!(error.contains("nested too deeply"), "{error}");
}

#[test]
fn references_of_ordinary_schemas_are_found() {
    for schema in [
        json!({"properties": {"a": {"$ref": "#/$defs/a%20b"}}, "$defs": {"a b": {"type": "integer"}}}),
        json!({"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here", "type": "integer"}}}),
        json!({"$id": "https://one.test/root.json", "properties": {"a": {"$ref": "part.json"}},
            "$defs": {"x": {"$id": "part.json", "type": "integer"}}}),
        json!({"properties": {"a": {"$ref": "#/definitions/enum"}}, "definitions": {"enum": {"type": "integer"}}}),
    ] {
        let tools = registered(schema.clone()).unwrap_or_else(|error| panic!("{error}: {schema}"));
        let check = |arguments| tools.get("hostile").unwrap().check_arguments(&arguments);
        assert!(check(json!({"a": 1})).is_ok(), "{schema}");
        assert!(check(json!({"a": "1"})).is_err(), "{schema}");
    }
}

/// Each schema hides its cost from a reader that resolves references in another way than the check.
#[test]
fn cost_that_a_schema_hides_is_found() {
    let address = |level: usize| format!("https://json-schema.org/d{level}");
    let doubled = |level: usize| {
        let next = json!({"$ref": address(level + 1)});
        json!({"$id": address(level), "allOf": [next.clone(), next]})
    };
    let of_ids = |doubled: &dyn Fn(usize) -> Value, last: Value| {
        let mut definitions: serde_json::Map<String, Value> = (0..34)
            .map(|level| (format!("d{level}"), doubled(level)))
            .collect();
        definitions.insert("d34".to_owned(), last);
        definitions
    };
    let named_like_json_schema = json!({
        "$ref": address(0), "$defs": of_ids(&doubled, json!({"$id": address(34)}))
    });
    // `./i` means `a/i` inside of `a/`.
    let decoy = json!({
        "$id": "https://one.test/", "$ref": "a/d0",
        "$defs": {
            "decoys": {"$defs": of_ids(&|level| json!({"$id": format!("d{level}")}), json!({"$id": "d34"}))},
            "real": {"$defs": of_ids(
                &|level| {
                    let next = json!({"$ref": format!("./d{}", level + 1)});
                    json!({"$id": format!("a/d{level}"), "allOf": [next.clone(), next]})
                },
                json!({"$id": "a/d34"}),
            )},
        },
    });
    for schema in [named_like_json_schema, decoy] {
        let error = registered(schema).unwrap_err();
        assert!(error.contains("more than 10000 schemas"), "{error}");
    }
    let wandering = registered(json!({
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "allOf": [{"$ref": "i"}],
        "$defs": {"i": {
            "$id": "i", "$recursiveAnchor": true, "properties": {"x": {"$recursiveRef": "#"}}
        }},
    }));
    assert!(wandering.unwrap_err().contains("$recursiveAnchor"));
    let old = registered(json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "definitions": {"a": {"id": "a"}},
    }));
    assert!(old.unwrap_err().contains("draft 4"));
}

/// Each of these arguments is small, but the check of each field or text repeats for many schemas.
#[test]
fn arguments_whose_check_repeats_for_many_schemas_are_refused() {
    let many = |leaf: Value| {
        let mut schema = doubling(11, |next| json!({"allOf": [next.clone(), next]}));
        schema["$defs"]["d11"] = leaf;
        schema
    };
    let fields: serde_json::Map<String, Value> =
        (0..10_000).map(|n| (format!("f{n}"), json!(n))).collect();
    let values: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    for (schema, arguments) in [
        (
            many(json!({"properties": {"zz": {}}})),
            Value::Object(fields),
        ),
        (
            json!({"properties": {"a": {"items": {"enum": values}}}}),
            json!({"a": vec!["no"; 1_000]}),
        ),
        (
            json!({
                "properties": {"a": {"$ref": "#/$defs/d0"}},
                "$defs": many(json!({"minLength": 1}))["$defs"],
            }),
            json!({"a": "x".repeat(1_000_000)}),
        ),
    ] {
        let tools = registered(schema).expect("it is allowed");
        let tool = tools.get("hostile").expect("it is registered");
        assert!(tool.is_long_check(&arguments));
        let error = tool.check_arguments(&arguments).unwrap_err().message;
        assert!(error.contains("too large to be checked"), "{error}");
    }
}

#[test]
fn long_check_of_a_text_does_not_hold_up_the_engine() {
    let tools = registered(json!({"properties": {"a": {"pattern": "(a{50}){50}"}}})).unwrap();
    let tool = tools.get("hostile").unwrap();
    assert!(!tool.is_long_check(&json!({"a": "a"})));
    let long = json!({"a": "a".repeat(100_000)});
    assert!(tool.is_long_check(&long));
    assert!(tool.check_arguments(&long).is_ok());
}

/// A schema may refer to the schemas of JSON Schema. A reference in the documentation of a schema is no reference.
#[test]
fn schemas_with_harmless_references_are_accepted() {
    let tools = registered(json!({
        "properties": {"a": {"$ref": "https://json-schema.org/draft/2020-12/schema"}},
        "x-docs": {"$ref": "https://elsewhere.test/"},
        "$defs": {"inner": {"$id": "inner", "properties": {"x": {"type": "integer"}}}},
        "additionalProperties": {"$ref": "#/$defs/inner/properties/x"},
    }));
    let tools = tools.unwrap_or_else(|error| panic!("{error}"));
    let tool = tools.get("hostile").unwrap();
    assert!(
        tool.check_arguments(&json!({"a": {"type": "string"}, "b": 1}))
            .is_ok()
    );
    assert!(tool.check_arguments(&json!({"a": {"type": 1}})).is_err());
    let anchored = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": {"$ref": "#here"}}, "definitions": {"x": {"$id": "#here", "type": "integer"}},
    });
    let tools = registered(anchored).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        tools
            .get("hostile")
            .unwrap()
            .check_arguments(&json!({"a": 1}))
            .is_ok()
    );
    assert!(
        tools
            .get("hostile")
            .unwrap()
            .check_arguments(&json!({"a": "1"}))
            .is_err()
    );
}
