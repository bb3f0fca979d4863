//! Any arguments for the built-in tools: a tool accepts the arguments, or refuses them with a short error.
#![no_main]

use std::cell::OnceCell;
use std::sync::Arc;

use allstop_scope::{RootOptions, Scope};
use allstop_tools::{
    BackgroundHost, BackgroundRegistry, OutputFolder, ShellConfig, ToolRegistry, Workspace,
    builtin_tools, names,
};
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Maximum length of an error. A longer error would fill too much of the model's context.
const ERROR_BYTES_MAX: usize = 4_096;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    tool: u8,
    arguments: Json<'a>,
}

#[derive(Debug, Arbitrary)]
enum Json<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Natural(u64),
    Real(f64),
    Text(&'a str),
    List(Vec<Json<'a>>),
    Object(Vec<(Name<'a>, Json<'a>)>),
    /// JSON text in the form in which a model writes it.
    Parsed(&'a str),
}

#[derive(Debug, Arbitrary)]
enum Name<'a> {
    /// The name of a field that the tool has.
    Known(u8),
    Other(&'a str),
}

impl Json<'_> {
    /// Converts the value to JSON. `fields` are the fields of the tool.
    fn into_value(self, fields: &[&String]) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(is) => is.into(),
            Self::Integer(number) => number.into(),
            Self::Natural(number) => number.into(),
            Self::Real(number) => number.into(),
            Self::Text(text) => text.into(),
            Self::List(items) => items
                .into_iter()
                .map(|item| item.into_value(fields))
                .collect(),
            Self::Object(named) => named
                .into_iter()
                .map(|(name, json)| (name.text(fields), json.into_value(fields)))
                .collect(),
            Self::Parsed(text) => serde_json::from_str(text).unwrap_or_default(),
        }
    }
}

impl Name<'_> {
    fn text(&self, fields: &[&String]) -> String {
        match self {
            Self::Known(at) => fields[usize::from(*at) % fields.len()].clone(),
            Self::Other(name) => (*name).to_owned(),
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let name = names::ALL[usize::from(input.tool) % names::ALL.len()];
    with_tools(|tools| {
        let tool = tools.find(name).expect("it is built in");
        let fields = tool.spec().input_schema["properties"]
            .as_object()
            .expect("every tool takes fields");
        let fields: Vec<&String> = fields.keys().collect();
        let arguments = input.arguments.into_value(&fields);
        if let Err(wrong) = tool.check_arguments(&arguments) {
            assert!(wrong.message.len() <= ERROR_BYTES_MAX, "{}", wrong.message);
            assert!(wrong.message.contains(name), "{}", wrong.message);
        } else {
            assert!(arguments.is_object(), "every tool takes fields");
        }
    });
});

fn with_tools(look: impl FnOnce(&ToolRegistry)) {
    thread_local!(static TOOLS: OnceCell<(ToolRegistry, tokio::runtime::Runtime)> = const { OnceCell::new() });
    TOOLS.with(|tools| look(&tools.get_or_init(all_tools).0));
}

fn all_tools() -> (ToolRegistry, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers can be built");
    let entered = runtime.enter();
    let scope = Scope::root("session", RootOptions::current());
    drop(entered);
    let host: Arc<dyn BackgroundHost> = Arc::new(BackgroundRegistry::new(scope));
    // The target runs no tool, so it neither reads nor writes these folders.
    let workspace = Arc::new(Workspace::new("/").expect("the root is there"));
    let shell = ShellConfig::new("/", Arc::new(OutputFolder::new("/nowhere")));
    let mut registry = ToolRegistry::new();
    for tool in builtin_tools(&workspace, shell, &host) {
        registry
            .register(tool)
            .expect("their names and schemas are valid");
    }
    (registry, runtime)
}
