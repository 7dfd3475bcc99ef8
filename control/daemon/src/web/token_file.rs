//! The file with the token. It is read at each change, so that a leaked token can be replaced
//! without a restart.

use crate::sandbox;
use problem::Problem;
use problem::token::Token;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most bytes to read: more than a token and the end of its line.
const MOST: u64 = 256;

/// Reads the token from a file that other users may not read.
///
/// # Errors
/// The file cannot be opened, is not a regular file, may be read or written by other users, or
/// holds no token.
pub(super) fn read(path: &Path) -> Result<Token, Problem> {
    let trouble = |seen: String| {
        Problem::new(format!("the token file {} cannot be used", path.display()))
            .seen(seen)
            .wanted("a regular file with a token that the daemon may read and other users may not")
            .remedy("correct `token-file` in [web], or the file's owner and mode (0600, or 0640 for the daemon's group)")
    };
    // A FIFO in the file's place does not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty()).map_err(|error| {
        let sandboxed = sandbox::unreadable(path, &error.into());
        sandboxed.unwrap_or_else(|| trouble(error.to_string()))
    })?;
    let facts = fstat(&file).map_err(|error| trouble(error.to_string()))?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return Err(trouble("another kind of file".to_owned()));
    }
    if facts.st_mode & 0o007 != 0 {
        return Err(trouble(format!("mode {:04o}", facts.st_mode & 0o7777)));
    }
    let mut text = String::new();
    let file = File::from(file);
    file.take(MOST).read_to_string(&mut text).map_err(|error| trouble(error.to_string()))?;
    text.trim_end().parse().map_err(trouble)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_read_where_others_cannot_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            read(&path)
        };
        let token = "0123456789abcdef";
        assert!(write(&format!("{token}\n"), 0o640).unwrap().matches(token));
        for (text, mode, seen) in [
            (token, 0o644, "mode 0644"),
            (token, 0o602, "mode 0602"),
            ("short", 0o600, "16 to 128"),
            (&"x".repeat(1000), 0o600, "16 to 128"),
            ("", 0o600, "16 to 128"),
        ] {
            assert!(write(text, mode).unwrap_err().seen.contains(seen), "{text} {mode:o}");
        }
        let problem = read(directory.path()).unwrap_err();
        assert!(problem.seen.contains("another kind"), "{problem}");
        assert!(read(&directory.path().join("none")).unwrap_err().seen.contains("No such file"));
    }
}
