//! Reads and writes files with secrets: they are refused if another user can read them, and written
//! so that none can.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use daemon::Replacement;
use problem::Problem;
use rustix::fs::{FileType, fstat};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The bits that let the group or others read, write or run a file.
const OTHERS: u32 = 0o077;
/// Most bytes of a key or password.
const LONGEST: u64 = 64 << 10;

/// Reads a file with a secret. `what` names the secret, as in `the key of the client certificate`.
pub(crate) fn read(what: &str, path: &Path) -> Result<Vec<u8>, Problem> {
    let unreadable = |error: io::Error| {
        Problem::new(format!("{what} cannot be read from {}", path.display()))
            .seen(error)
            .wanted("a file that this user can read")
            .remedy("name the right file; `millrace fleet bootstrap` writes one for each host")
    };
    let file = File::open(path).map_err(unreadable)?;
    let facts = fstat(&file).map_err(|error| unreadable(error.into()))?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return Err(unreadable(io::Error::other("not a regular file")));
    }
    check_mode(what, path, facts.st_mode)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LONGEST {
        return Err(unreadable(io::Error::other("it is longer than 64 KiB")));
    }
    Ok(bytes)
}

fn check_mode(what: &str, path: &Path, mode: u32) -> Result<(), Problem> {
    let mode = mode & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    Err(Problem::new(format!("other users can read or change {what}, {}", path.display()))
        .seen(format!("mode {mode:04o}"))
        .wanted("mode 0600, or 0400")
        .remedy(format!(
            "chmod 600 {}; if anyone may have read it, replace the secret: `millrace fleet bootstrap --rotate`",
            path.display()
        )))
}

/// Reads a password: the first line of its file.
pub(crate) fn password(path: &Path) -> Result<String, Problem> {
    let bytes = read("the password", path)?;
    let text = String::from_utf8(bytes).ok();
    let line = text.as_deref().and_then(|text| text.lines().next()).unwrap_or_default();
    if line.is_empty() {
        return Err(Problem::new(format!("{} has no password", path.display()))
            .seen("an empty first line, or bytes that are not UTF-8")
            .wanted("the password as the first line")
            .remedy("name the file that `millrace fleet bootstrap` wrote for this user"));
    }
    Ok(line.to_owned())
}

/// Writes a file that only this user can read. It replaces an older one atomically, and is on the
/// disk before this returns.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Problem> {
    let written = || -> io::Result<()> {
        let mut new = Replacement::begin_secret(path)?;
        new.file.write_all(text.as_bytes())?;
        new.finish()
    };
    written().map_err(|error| unwritten(path, &error))
}

/// Makes a directory that only this user can enter, and those above it, unless they exist.
pub(crate) fn make_directory(path: &Path) -> Result<(), Problem> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| unwritten(path, &error))
}

/// Returns the problem with a file or directory that cannot be made.
pub(crate) fn unwritten(path: &Path, error: &io::Error) -> Problem {
    Problem::new(format!("{} cannot be written", path.display()))
        .seen(error)
        .wanted("a directory that this user can write")
        .remedy("name another directory")
}

/// Returns a new password: 32 random bytes as text.
pub(crate) fn generate() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    // The kernel never returns fewer bytes for requests of up to 256.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Problem::new("the kernel gives no random bytes").seen(error))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn file(text: &[u8], mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_secret_is_read_only_if_no_other_user_has_a_right_to_it(mode in 0u32..0o1000) {
            // The superuser of this test reads whatever the owner's bits are.
            let (_folder, path) = file(b"secret\n", mode | 0o400);
            let got = read("the key", &path);
            prop_assert_eq!(got.is_ok(), mode & 0o77 == 0);
            if let Err(problem) = got {
                prop_assert_eq!(problem.seen, format!("mode {:04o}", mode | 0o400));
                prop_assert!(problem.wanted.contains("0600") && problem.remedy.contains("chmod 600"));
            }
        }
    }

    #[test]
    fn a_password_is_the_first_line() {
        for text in ["secret", "secret\n", "secret\r\n", "secret\nmore"] {
            let (_folder, path) = file(text.as_bytes(), 0o600);
            assert_eq!(password(&path).as_deref(), Ok("secret"));
        }
        for text in [&b""[..], b"\nsecret", b"\xff\xfe"] {
            let (_folder, path) = file(text, 0o600);
            assert!(password(&path).unwrap_err().error.ends_with("has no password"));
        }
    }

    #[test]
    fn neither_a_directory_nor_an_endless_file_is_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read("the key", folder.path()).unwrap_err().seen.contains("not a regular file"));
        let (_folder, path) = file(&vec![b'a'; 70 << 10], 0o600);
        assert!(read("the key", &path).unwrap_err().seen.contains("64 KiB"));
    }

    #[test]
    fn a_written_secret_is_for_its_owner_even_if_the_old_file_was_not() {
        let (_folder, path) = file(b"old", 0o644);
        write(&path, "new\n").unwrap();
        assert_eq!(password(&path).as_deref(), Ok("new"));
    }

    #[test]
    fn generated_passwords_are_long_and_differ() {
        let [one, other] = [generate().unwrap(), generate().unwrap()];
        assert!(one != other && one.len() == 43, "{one} {other}");
    }
}
