#![doc = include_str!("guide.markdown")]
// The samples of the chapter for embedders are compiled, too.
#![cfg_attr(doctest, doc = include_str!("chapter.markdown"))]
