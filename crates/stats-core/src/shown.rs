//! So much of what was given as an error may show.

use serde_json::Value;

const CHARACTERS: usize = 40;

/// A value that is wrong.
pub(crate) fn shown(value: &Value) -> String {
    short(&value.to_string())
}

/// A text that is.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
