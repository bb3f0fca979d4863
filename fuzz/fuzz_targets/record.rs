//! Any bytes as a log record. The decoder refuses them with a reason, or decodes them. A decoded record must
//! round-trip.
#![no_main]

use allstop_log::session::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The bytes are refused, or they are a record of an unknown optional type.
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
