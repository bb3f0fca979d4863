//! Any bytes as a log record: refused with a reason, or decoded; then the record round-trips.
#![no_main]

use allstop_log::session::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The bytes are refused, or have an unknown optional type.
    let Ok(Some(record)) = decode(bytes) else {
        return;
    };
    let mut written = Vec::new();
    encode(&record, &mut written);
    match decode(&written) {
        Ok(again) => assert_eq!(again, Some(record), "the record changed"),
        Err(error) => panic!("what was written cannot be read: {error:?}"),
    }
});
