#![doc = include_str!("../../../docs/testing-stops.md")]
