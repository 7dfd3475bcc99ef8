//! The word that was meant, by the letters that differ: clap compares words by their beginnings,
//! and takes `vrss` for what is nearest to `rcs`.

use clap::error::{ContextKind, ContextValue};
use config::nearest;
use std::ffi::OsString;

/// Replaces clap's suggestion for an unknown word by the nearest word, if there is one.
pub(super) fn improve(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    if let Some(seen) = text(ContextKind::InvalidSubcommand) {
        let known = subcommands(words, &seen);
        if let Some(near) = closest(&seen, &known) {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near]));
        }
    } else if let Some(seen) = text(ContextKind::InvalidValue) {
        let known = match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(known)) => known.clone(),
            _ => Vec::new(),
        };
        if let Some(near) = closest(&seen, &known) {
            error.insert(ContextKind::SuggestedValue, ContextValue::String(near));
        }
    }
    error
}

fn closest(seen: &str, known: &[String]) -> Option<String> {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    nearest(seen, &known).map(str::to_owned)
}

/// Returns the commands that may stand where the unknown word does.
fn subcommands(words: &[OsString], seen: &str) -> Vec<String> {
    let mut command = super::command();
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        if word == seen {
            break;
        }
        if let Some(inner) = command.find_subcommand(word).cloned() {
            command = inner;
        }
    }
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}
