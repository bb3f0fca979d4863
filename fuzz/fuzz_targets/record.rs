//! Any bytes as a record of a log: refused with a reason, or read, written and read again as the same record.
#![no_main]

use allstop_log::session::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Refused, or of an optional type that this version does not know.
    let Ok(Some(record)) = decode(bytes) else {
        return;
    };
    let mut written = Vec::new();
    encode(&record, &mut written);
    match decode(&written) {
        Ok(again) => assert_eq!(again, Some(record), "it comes back as another record"),
        Err(error) => panic!("what was written cannot be read: {error:?}"),
    }
});
