//! Whether the kernel preempts its softirqs, as one with PREEMPT_RT does.
//!
//! The judge leaves its verdict about a frame in a place of the processor, and the carrier takes it
//! from there a moment later, in the same softirq. Nothing else may judge a frame on that processor
//! in between. With PREEMPT_RT softirqs are threads, and one can be preempted by another.

use std::fs;

/// Reads 1 where the kernel is one with PREEMPT_RT. Kernels without it lack the file, and so do
/// some with it.
const REALTIME: &str = "/sys/kernel/realtime";
/// What `uname -v` prints.
const VERSION: &str = "/proc/sys/kernel/version";

/// Returns what says that this kernel preempts softirqs; `None` if nothing does.
pub fn preempts_softirqs() -> Option<String> {
    let [realtime, version] = [REALTIME, VERSION].map(fs::read_to_string);
    judge(&realtime.unwrap_or_default(), &version.unwrap_or_default())
}

fn judge(realtime: &str, version: &str) -> Option<String> {
    if realtime.trim() == "1" {
        return Some(format!("{REALTIME} is 1"));
    }
    let is_named = ["PREEMPT_RT", "PREEMPT RT"].iter().any(|name| version.contains(name));
    is_named.then(|| format!("`uname -v` says {}", version.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_time_kernel_is_known_by_its_file_or_by_its_version() {
        for (realtime, version, is_one) in [
            ("1\n", "#1 SMP PREEMPT_RT Debian 6.12.9-1 (2026-01-10)\n", true),
            ("1\n", "#1 SMP\n", true),
            ("", "#1 SMP PREEMPT_RT Debian 6.12.9-1 (2026-01-10)\n", true),
            ("", "#8 SMP PREEMPT RT 2019\n", true),
            ("0\n", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1 (2026-01-10)\n", false),
            ("", "#1 SMP PREEMPT_DYNAMIC @0\n", false),
            ("", "#1 SMP PREEMPT\n", false),
            ("", "", false),
        ] {
            let found = judge(realtime, version);
            assert_eq!(found.is_some(), is_one, "{realtime:?} {version:?}: {found:?}");
        }
    }
}
