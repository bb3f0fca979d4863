//! Parameters of the automatic compaction of a session (`infiniteSessions`).

use allstop_jsonrpc::RpcError;
use allstop_runtime::AutoCompaction;
use allstop_session::CompactionLimits;
use serde::{Deserialize, Serialize};

/// Thresholds of the automatic compaction, as parts of the context window.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InfiniteSessionParams {
    enabled: Option<bool>,
    background_compaction_threshold: Option<f64>,
    /// The compaction of this server always ends before the next turn begins, so both thresholds have the same effect.
    buffer_exhaustion_threshold: Option<f64>,
}

/// Returns the choice of a client. Without thresholds, the configuration decides.
///
/// # Errors
/// Returns an error if a threshold is not between 0 and 1.
pub(super) fn compaction_of(
    params: Option<&InfiniteSessionParams>,
    context_window: u64,
) -> Result<AutoCompaction, RpcError> {
    let Some(params) = params else {
        return Ok(AutoCompaction::Configured);
    };
    let thresholds = [
        (
            "backgroundCompactionThreshold",
            params.background_compaction_threshold,
        ),
        (
            "bufferExhaustionThreshold",
            params.buffer_exhaustion_threshold,
        ),
    ];
    let mut lowest: Option<f64> = None;
    for (name, threshold) in thresholds {
        let Some(threshold) = threshold else { continue };
        if !(0.0..=1.0).contains(&threshold) {
            return Err(RpcError::invalid_params(format!(
                "`infiniteSessions.{name}` is {threshold}: use a number between 0 and 1"
            )));
        }
        lowest = Some(lowest.map_or(threshold, |lowest| lowest.min(threshold)));
    }
    Ok(match lowest {
        _ if params.enabled == Some(false) => AutoCompaction::Off,
        None => AutoCompaction::Configured,
        Some(part) => {
            #[expect(clippy::cast_sign_loss, reason = "no factor is negative")]
            let tokens = (context_window as f64 * part) as u64;
            // The official runtime summarises the whole conversation. A low threshold leaves no room for whole turns.
            let limits = CompactionLimits::default().turns_kept(0);
            AutoCompaction::Limits(limits.tokens_max(tokens))
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn choice(params: serde_json::Value) -> Result<AutoCompaction, RpcError> {
        let params = serde_json::from_value(params).expect("parameters");
        compaction_of(Some(&params), 100_000)
    }

    #[test]
    fn lowest_threshold_becomes_a_limit_in_tokens() {
        let params = json!({
            "backgroundCompactionThreshold": 0.005,
            "bufferExhaustionThreshold": 0.01,
        });
        let limits = CompactionLimits::default().turns_kept(0).tokens_max(500);
        let chosen = choice(params).expect("valid");
        assert_eq!(chosen, AutoCompaction::Limits(limits));
    }

    #[test]
    fn absent_thresholds_leave_the_configuration() {
        let chosen = choice(json!({ "enabled": true })).expect("valid");
        assert_eq!(chosen, AutoCompaction::Configured);
        let chosen = choice(json!({ "enabled": false, "backgroundCompactionThreshold": 0.5 }));
        assert_eq!(chosen.expect("valid"), AutoCompaction::Off);
    }

    #[test]
    fn threshold_above_one_is_refused() {
        assert!(choice(json!({ "bufferExhaustionThreshold": 1.5 })).is_err());
    }
}
