//! DPDK's word on a frame, from a program of `dpdk.c` that is compiled against its headers and
//! libraries.

use super::{Setting, guests, libraries};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The running program.
pub(crate) struct Dpdk(Child);

impl Dpdk {
    /// Compiles and starts it; or what it needs.
    pub(crate) fn start() -> Result<Dpdk, String> {
        let root = [PathBuf::from("/"), guests("testpmd")]
            .into_iter()
            .find(|root| root.join("usr/include/dpdk/rte_thash.h").exists())
            .ok_or("DPDK's headers: libdpdk-dev, or cargo xtask guests testpmd")?;
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dpdk-oracle");
        let folder = |flag: &str, path: &str| {
            let mut option = OsString::from(flag);
            option.push(root.join(path));
            option
        };
        // What pkg-config says of libdpdk, which finds it in the system alone.
        let compiled = Command::new("cc")
            .args(["-O2", "-w", "-march=corei7", "-include", "rte_config.h"])
            .arg(folder("-I", "usr/include/x86_64-linux-gnu/dpdk"))
            .arg(folder("-I", "usr/include/dpdk"))
            // Headers of what DPDK depends on, where they are not installed.
            .arg(folder("-idirafter", "usr/include"))
            .arg(folder("-idirafter", "usr/include/x86_64-linux-gnu"))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/oracle/dpdk.c"))
            .arg("-o")
            .arg(&program)
            .arg(folder("-L", "usr/lib/x86_64-linux-gnu"))
            .args(["-lrte_net", "-lrte_mbuf", "-Wl,--allow-shlib-undefined"])
            .output()
            .map_err(|error| format!("a C compiler, cc: {error}"))?;
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", libraries(&root))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Ok(Dpdk(command.spawn().unwrap()))
    }

    /// Returns the hash of a frame.
    pub(crate) fn hash(&mut self, setting: &Setting, frame: &[u8]) -> Option<u32> {
        let types = setting.types.bits().to_ne_bytes();
        let length = u16::try_from(frame.len()).unwrap().to_ne_bytes();
        let question = [&setting.key[..], &types, &length, frame].concat();
        self.0.stdin.as_mut().unwrap().write_all(&question).unwrap();
        let mut answer = [0; 8];
        self.0.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        let [is_hashed, hash] =
            [&answer[..4], &answer[4..]].map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()));
        (is_hashed == 1).then_some(hash)
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
