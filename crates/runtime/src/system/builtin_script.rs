//! Scripts compiled into the program. `script:NAME` names such a script without a file.

/// A script compiled into the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltinScript {
    /// Name after `script:`.
    pub name: &'static str,
    /// The script, in YAML.
    pub text: &'static str,
}

/// All scripts compiled into the program. To use a file with such a name, give its path, as in `script:./demo`.
pub const BUILTIN_SCRIPTS: [BuiltinScript; 3] = [
    BuiltinScript {
        name: "demo",
        text: include_str!("../../scripts/demo.yaml"),
    },
    BuiltinScript {
        name: "hello",
        text: include_str!("../../scripts/hello.yaml"),
    },
    BuiltinScript {
        name: "tree",
        text: include_str!("../../scripts/tree.yaml"),
    },
];

/// Returns the built-in script with this name.
pub(crate) fn builtin_script(name: &str) -> Option<BuiltinScript> {
    BUILTIN_SCRIPTS
        .into_iter()
        .find(|script| script.name == name)
}

/// Lists the names, for a message.
pub(crate) fn builtin_script_names() -> String {
    BUILTIN_SCRIPTS
        .map(|script| format!("script:{}", script.name))
        .join(", ")
}

#[cfg(test)]
mod tests {
    use allstop_model::ScriptedModel;

    use super::*;

    #[test]
    fn builtin_scripts_are_valid() {
        for script in BUILTIN_SCRIPTS {
            ScriptedModel::parse(script.name, script.text).unwrap();
        }
        assert_eq!(builtin_script("./demo"), None);
    }
}
