//! The state that is computed from records, and the stored form of records.

use std::sync::Arc;

use allstop_core::TaskId;
use allstop_log::Version;

use super::config::PushConfig;
use super::guard::AddressGuard;
use super::record::{DeliveryPhase, PushRecord, PushRecordError, TaskPushConfigs};
use crate::version::ProtocolVersion;

fn config(id: &str) -> Arc<PushConfig> {
    let given = serde_json::json!({
        "id": id, "url": "https://hook.example/path-secret?q=query-secret", "token": "token-secret",
        "authentication": {"scheme": "Bearer", "credentials": "credentials-secret"},
    });
    let given = serde_json::from_value(given).unwrap();
    Arc::new(PushConfig::from_wire(given, ProtocolVersion::V1, &AddressGuard::default()).unwrap())
}

fn set(id: &str, behind: u64) -> PushRecord {
    PushRecord::ConfigSet {
        config: config(id),
        behind: Version(behind),
    }
}

fn delivered(id: &str, up_to: u64, is_last: bool) -> PushRecord {
    PushRecord::Delivered {
        id: id.into(),
        up_to: Version(up_to),
        is_last,
    }
}

fn paused(id: &str) -> PushRecord {
    PushRecord::DeliveryPaused {
        id: id.into(),
        error: "HTTP status 500".into(),
    }
}

fn deleted(id: &str) -> PushRecord {
    PushRecord::ConfigDeleted { id: id.into() }
}

#[test]
fn records_fold_to_the_progress_of_each_configuration() {
    use DeliveryPhase::{Active, Finished, Paused};
    type Expected<'a> = &'a [(&'a str, u64, u64, DeliveryPhase)];
    let cases: [(&[PushRecord], Expected); 6] = [
        (&[set("a", 3)], &[("a", 1, 3, Active)]),
        (
            &[set("a", 3), set("b", 4), delivered("a", 7, false)],
            &[("a", 1, 7, Active), ("b", 2, 4, Active)],
        ),
        // Progress never decreases.
        (
            &[
                set("a", 3),
                delivered("a", 7, false),
                delivered("a", 5, true),
            ],
            &[("a", 1, 7, Finished)],
        ),
        (
            &[set("a", 3), paused("a"), set("a", 5)],
            &[("a", 3, 5, Active)],
        ),
        (&[set("a", 3), paused("a")], &[("a", 1, 3, Paused)]),
        (
            &[
                set("a", 3),
                deleted("a"),
                delivered("a", 9, true),
                paused("a"),
            ],
            &[],
        ),
    ];
    for (records, expected) in cases {
        let mut fold = TaskPushConfigs::default();
        for record in records {
            // Encodes and decodes the record, as during a restart.
            let record = PushRecord::decode(&record.encode()).unwrap();
            fold.apply(&record);
        }
        let found: Vec<_> = fold
            .configs
            .iter()
            .map(|(id, progress)| {
                let (set_at, delivered) = (progress.set_at.0, progress.delivered.0);
                (&**id, set_at, delivered, progress.phase)
            })
            .collect();
        assert_eq!(found, expected, "{records:?}");
        assert_eq!(fold.version, Version(records.len() as u64));
    }
}

#[test]
fn debug_text_has_no_secret() {
    let record = set("a", 1);
    let wire = config("a").to_wire(&TaskId::from("t"));
    assert_eq!(wire.token.as_deref(), Some("token-secret"));
    let text = format!("{record:?} {:#?}", config("a"));
    assert!(!text.contains("secret"), "{text}");
    assert!(text.contains("hook.example"), "{text}");
}

#[test]
fn record_of_a_newer_version_is_named() {
    let newer = PushRecord::decode(br#"{"v":2,"type":"config_moved"}"#);
    assert!(matches!(newer, Err(PushRecordError::Newer(2))));
    let broken = PushRecord::decode(br#"{"v":1,"type":"delivered","id":"secret"}"#);
    let text = broken.unwrap_err().to_string();
    assert!(!text.contains("secret"), "{text}");
}

/// Records of earlier versions of this program have no protocol version, and stay readable.
#[test]
fn only_configurations_of_version_0_3_store_their_protocol_version() {
    for (version, is_stored) in [(ProtocolVersion::V1, false), (ProtocolVersion::V0_3, true)] {
        let config = PushConfig {
            version,
            ..(*config("a")).clone()
        };
        let record = PushRecord::ConfigSet {
            config: Arc::new(config),
            behind: Version(3),
        };
        let stored = record.encode();
        let text = String::from_utf8_lossy(&stored);
        assert_eq!(text.contains("\"version\":\"0.3\""), is_stored, "{text}");
        assert_eq!(text.contains("\"version\""), is_stored, "{text}");
        assert_eq!(PushRecord::decode(&stored).ok(), Some(record));
    }
}
