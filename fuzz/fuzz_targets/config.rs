//! Any text as a configuration. The parser refuses the text with an error of one line that contains the position, or it
//! parses the text. A parsed configuration must round-trip.
#![no_main]

use std::path::Path;

use allstop_runtime::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let file = Path::new("allstop.toml");
    match Config::parse(file, text) {
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            if let Some((line, _)) = error.at {
                assert!((1..=text.lines().count() + 1).contains(&line), "{error}");
            }
        }
        Ok(config) => {
            let written = toml::to_string(&config).expect("a configuration can be written");
            let again = Config::parse(file, &written).expect("what was written can be read");
            assert_eq!(again, config, "{written}");
        }
    }
});
