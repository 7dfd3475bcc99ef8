//! Huge pages of 2 MiB, for the vNICs and for peers that need them: reserved for the run if
//! permitted, and released afterwards.

use anyhow::{Context, Result, ensure};
use std::path::PathBuf;

const PAGE: usize = 2 << 20;
const DIRECTORY: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// A reservation. Dropping it restores the former number of pages.
#[derive(Debug)]
pub(crate) struct HugePages {
    former: Option<usize>,
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(name)
}

fn read(name: &str) -> Result<usize> {
    let path = file(name);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} does not exist: no huge pages of 2 MiB", path.display()))?;
    text.trim().parse().with_context(|| format!("{} says {text:?}", path.display()))
}

impl HugePages {
    /// Ensures that huge pages of `bytes` are free.
    ///
    /// # Errors
    /// Too few are free, and no more can be reserved; any change is undone.
    pub(crate) fn reserve(bytes: usize) -> Result<HugePages> {
        let wanted = bytes.div_ceil(PAGE);
        let free = read("free_hugepages")?;
        if free >= wanted {
            return Ok(HugePages { former: None });
        }
        let former = read("nr_hugepages")?;
        let all = former + wanted - free;
        std::fs::write(file("nr_hugepages"), all.to_string()).with_context(|| {
            format!("{free} huge pages are free, {wanted} are needed: sysctl vm.nr_hugepages={all}")
        })?;
        let reservation = HugePages { former: Some(former) };
        let free = read("free_hugepages")?;
        ensure!(
            free >= wanted,
            "the kernel has {free} huge pages of 2 MiB, {wanted} are needed: free some memory"
        );
        Ok(reservation)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(former) = self.former {
            // An error has no remedy here; until then the pages stay available to all programs.
            let _ = std::fs::write(file("nr_hugepages"), former.to_string());
        }
    }
}
