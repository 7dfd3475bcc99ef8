//! Command lines as a shell reads them.

/// A word of a shell's command line, in quotes where a shell would read more into it.
pub(crate) fn word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.,:/@".contains(&byte);
    if text.bytes().all(plain) { text.into() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
