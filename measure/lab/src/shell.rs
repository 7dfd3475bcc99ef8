//! Command lines as a shell reads them.

/// Returns a text as one word of a shell's command line, in quotes if necessary.
pub(crate) fn word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.,:/@".contains(&byte);
    if text.bytes().all(plain) { text.into() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
