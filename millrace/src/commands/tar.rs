//! A tar archive of small files (POSIX.1-2017, ustar interchange format).

/// Bytes of a block.
const BLOCK: usize = 512;
/// The fields of a header, and where each ends.
const NAME: usize = 100;
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// An archive that is being written.
pub(crate) struct Archive {
    bytes: Vec<u8>,
    /// Modification time of all files, in seconds since 1970.
    time: u64,
}

impl Archive {
    pub(crate) fn new(time: u64) -> Archive {
        Archive { bytes: Vec::new(), time }
    }

    /// Adds a file with mode 0600. Names are cut at 99 bytes; ours are shorter.
    pub(crate) fn add(&mut self, name: &str, file: &[u8]) {
        let mut header = Vec::with_capacity(BLOCK);
        header.extend(name.bytes().take(NAME - 1));
        header.resize(NAME, 0);
        for (value, digits) in
            [(0o600, 7), (0, 7), (0, 7), (file.len() as u64, 11), (self.time, 11)]
        {
            header.extend(format!("{value:0digits$o}\0").into_bytes());
        }
        // Summed as if the checksum were blanks, then the type of a plain file and no link.
        header.extend(b"        0");
        header.resize(257, 0);
        header.extend(b"ustar\x0000");
        header.resize(BLOCK, 0);
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        let sum = format!("{sum:06o}\0 ").into_bytes();
        header.splice(CHECKSUM, sum);
        self.bytes.extend(header);
        self.bytes.extend(file);
        self.pad(BLOCK);
    }

    /// The archive: two empty blocks are its end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend([0; 2 * BLOCK]);
        self.pad(20 * BLOCK);
        self.bytes
    }

    fn pad(&mut self, block: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(block), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// What the system's own tar finds in it.
    #[test]
    fn tar_unpacks_what_was_added() {
        let mut archive = Archive::new(1_700_000_000);
        let long = vec![b'x'; 1025];
        archive.add("d/one.txt", b"one\n");
        archive.add("d/long", &long);
        archive.add("d/empty", b"");
        let bytes = archive.finish();
        let tar = |arguments: &[&str]| {
            let mut tar = Command::new("tar")
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            tar.stdin.take().unwrap().write_all(&bytes).unwrap();
            tar.wait_with_output().unwrap().stdout
        };
        assert_eq!(tar(&["-t"]), b"d/one.txt\nd/long\nd/empty\n");
        assert_eq!(tar(&["-xO", "d/one.txt"]), b"one\n");
        assert_eq!(tar(&["-xO", "d/long"]), long);
    }
}
