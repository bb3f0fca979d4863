//! The project's instructions for the model (`AGENTS.md`), as lines for the user.

use allstop_core::counted::counted;
use allstop_runtime::ProjectInstructions;

/// One line with the names of the files in the system prompt, and one line for each omitted file.
pub(crate) fn describe_instructions(instructions: &ProjectInstructions) -> Vec<String> {
    let names: Vec<String> = instructions
        .files
        .iter()
        .map(|file| {
            if file.is_cut {
                let (shown, len) = (file.text.len(), file.len);
                let len = counted(len, "byte", "bytes");
                format!("{} (the first {shown} of {len})", file.path)
            } else {
                file.path.clone()
            }
        })
        .collect();
    let line = (!names.is_empty()).then(|| format!("instructions: {}", names.join(", ")));
    let left_out = instructions.left_out.iter();
    line.into_iter()
        .chain(left_out.map(|reason| format!("instructions left out: {reason}")))
        .collect()
}
