//! The world of a guest: files out of unpacked packages, packed as a cpio archive.

use crate::program::{call, printed, program};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LOADER: &str = "ld-linux-x86-64.so.2";

/// A world that is being made, beside the packages from which it is made.
pub(super) struct World {
    /// Where the packages are unpacked.
    pub(super) tools: PathBuf,
    /// The root of the world.
    pub(super) root: PathBuf,
}

impl World {
    /// Returns an empty world in a guest's new directory.
    ///
    /// # Errors
    /// Its directories cannot be made.
    pub(super) fn below(new: &Path) -> Result<Self> {
        let world = Self { tools: new.join("tools"), root: new.join("world") };
        fs::create_dir_all(&world.tools)?;
        fs::create_dir_all(&world.root)?;
        Ok(world)
    }

    /// Makes directories of the world.
    ///
    /// # Errors
    /// They cannot be made.
    pub(super) fn directories(&self, names: &[&str]) -> Result<()> {
        names.iter().try_for_each(|name| Ok(fs::create_dir_all(self.root.join(name))?))
    }

    /// Makes a symbolic link of the world.
    ///
    /// # Errors
    /// The file exists already.
    pub(super) fn link(&self, target: &str, name: &str) -> Result<()> {
        symlink(target, self.root.join(name)).with_context(|| format!("{name} cannot be linked"))
    }

    /// Copies a file or a directory of the packages into a directory of the world.
    ///
    /// # Errors
    /// The packages do not have it.
    pub(super) fn copy(&self, from: &str, to: &str) -> Result<()> {
        call(program("cp").arg("-r").arg(self.tools.join(from)).arg(self.root.join(to)))
    }

    /// Copies programs of the packages, and the libraries they load, into the world.
    ///
    /// # Errors
    /// The packages do not have all of them.
    pub(super) fn programs(&self, names: &[&str]) -> Result<()> {
        self.directories(&["bin", "lib64"])?;
        let files = walk(&self.tools)?;
        let programs = names.iter().map(|name| {
            program_in(&files, name).with_context(|| format!("no package has the program {name}"))
        });
        let programs = programs.collect::<Result<Vec<_>>>()?;
        for (name, program) in names.iter().zip(&programs) {
            fs::copy(program, self.root.join("bin").join(name))?;
        }
        let mut libraries = needed(&files, &programs)?;
        libraries.insert(LOADER.to_owned());
        libraries.iter().try_for_each(|name| copy_library(&files, name, &self.root))
    }

    /// Copies a library that programs load while they run.
    ///
    /// # Errors
    /// No package has it.
    pub(super) fn library(&self, name: &str) -> Result<()> {
        copy_library(&walk(&self.tools)?, name, &self.root)
    }

    /// Copies kernel modules, with a list of their order.
    ///
    /// # Errors
    /// They cannot be copied.
    pub(super) fn modules(&self, list: &str, modules: &[PathBuf]) -> Result<()> {
        self.directories(&["modules"])?;
        let directory = self.root.join("modules");
        let mut names = String::new();
        for module in modules {
            let name = name(module);
            fs::copy(module, directory.join(&name))?;
            names.push_str(&name);
            names.push('\n');
        }
        Ok(fs::write(directory.join(list), names)?)
    }

    /// Packs the world with this busybox, and removes it and the packages.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(super) fn pack(self, busybox: &Path, archive: &Path) -> Result<()> {
        let mut cpio = program(busybox);
        cpio.args("cpio -o -H newc -R 0:0".split(' ')).current_dir(&self.root);
        // It prints the number of blocks as an error.
        cpio.stdin(Stdio::piped()).stdout(File::create(archive)?).stderr(Stdio::null());
        let mut child = cpio.spawn().context("busybox cannot be started")?;
        let mut names = child.stdin.take().context("busybox has no standard input")?;
        for path in walk(&self.root)? {
            let name = path.strip_prefix(&self.root)?.to_string_lossy();
            writeln!(names, "{}", if name.is_empty() { "." } else { &name })?;
        }
        drop(names);
        let status = child.wait()?;
        if !status.success() {
            bail!("busybox cpio cannot write {}: {status}", archive.display());
        }
        fs::remove_dir_all(self.tools)?;
        Ok(fs::remove_dir_all(self.root)?)
    }
}

/// Returns the files of kernel modules by name, in this order. A module that the kernel does not
/// have, or has built in, is left out.
///
/// # Errors
/// A compressed module cannot be expanded.
pub(super) fn modules(directory: &Path, names: &[&str]) -> Result<Vec<PathBuf>> {
    let files = walk(directory)?;
    let mut found = Vec::new();
    for module in names.iter().filter_map(|module| module_in(&files, module)) {
        if module.extension().is_some_and(|ending| ending == "xz") {
            call(program("xz").arg("-d").arg(module))?;
            found.push(module.with_extension(""));
        } else {
            found.push(module.clone());
        }
    }
    Ok(found)
}

/// Returns the file `NAME.ko`, which may be compressed.
fn module_in<'f>(files: &'f [PathBuf], module: &str) -> Option<&'f PathBuf> {
    files.iter().find(|file| name(file).starts_with(&format!("{module}.ko")))
}

/// Returns the program in a directory `bin` or `sbin`.
fn program_in(files: &[PathBuf], program: &str) -> Option<PathBuf> {
    let ending = format!("bin/{program}");
    let is_program = |file: &&PathBuf| {
        file.to_string_lossy().ends_with(&ending) && !file.is_symlink() && file.is_file()
    };
    files.iter().find(is_program).cloned()
}

/// Returns the library of this name. The one in /lib64 is a link that leads out of the packages.
fn library_in<'f>(files: &'f [PathBuf], library: &str) -> Option<&'f PathBuf> {
    let is_outside = |file: &Path| file.to_string_lossy().contains("/lib64/");
    files.iter().find(|file| name(file) == library && !is_outside(file))
}

fn copy_library(files: &[PathBuf], library: &str, world: &Path) -> Result<()> {
    let file = library_in(files, library);
    let file = file.with_context(|| format!("no package has the library {library}"))?;
    fs::copy(file, world.join("lib64").join(library))
        .with_context(|| format!("{} cannot be copied", file.display()))?;
    Ok(())
}

/// Returns the names of the libraries that programs load, all the way down.
fn needed(files: &[PathBuf], programs: &[PathBuf]) -> Result<BTreeSet<String>> {
    let libraries = files.iter().filter(|file| name(file).contains(".so."));
    let directories: BTreeSet<_> = libraries.filter_map(|file| file.parent()).collect();
    let path = std::env::join_paths(directories)?;
    let loader = library_in(files, LOADER).context("no package has the dynamic loader")?;
    let mut needed = BTreeSet::new();
    for file in programs {
        let mut list = Command::new(loader);
        list.arg("--library-path").arg(&path).arg("--list").arg(file);
        needed.extend(printed(&mut list)?.lines().filter_map(loaded).map(str::to_owned));
    }
    Ok(needed)
}

/// Returns the name of a library in a line of the dynamic loader's: `libc.so.6 => /lib/libc.so.6
/// (0x…)`. Libraries without a name, such as the loader and the kernel's own, have other lines.
fn loaded(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().split_once(" => ")?;
    (!name.contains(['/', ' '])).then_some(name)
}

/// Returns the file name of a path.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns a directory and everything below it, sorted, each directory before its files. Symbolic
/// links are not followed.
///
/// # Errors
/// A directory cannot be read.
fn walk(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![directory.to_owned()];
    let entries = fs::read_dir(directory)
        .with_context(|| format!("{} cannot be read", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            found.extend(walk(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn the_dynamic_loader_names_libraries_before_their_paths() {
        let told = "\tlinux-vdso.so.1 (0x00007ffc)
\tlibtinfo.so.6 => /tools/lib/x86_64-linux-gnu/libtinfo.so.6 (0x00007f01)
\tlibc.so.6 => /lib/libc.so.6 (0x00007f00)
\t/lib64/ld-linux-x86-64.so.2 => /tools/lib/ld-linux-x86-64.so.2 (0x00007f02)";
        let names: Vec<&str> = told.lines().filter_map(loaded).collect();
        assert_eq!(names, ["libtinfo.so.6", "libc.so.6"]);
    }

    #[test]
    fn a_module_is_found_compressed_or_not_but_not_by_a_part_of_its_name() {
        let files = paths(&["k/virtio_net.ko", "k/net_failover.ko.xz", "k/virtio.ko"]);
        assert_eq!(module_in(&files, "virtio"), Some(&files[2]));
        assert_eq!(module_in(&files, "net_failover"), Some(&files[1]));
        assert_eq!(module_in(&files, "failover"), None);
    }

    #[test]
    fn a_library_in_lib64_leads_out_of_the_packages() {
        let files = paths(&["t/lib64/ld-linux-x86-64.so.2", "t/lib/a/ld-linux-x86-64.so.2"]);
        assert_eq!(library_in(&files, LOADER), Some(&files[1]));
        assert_eq!(library_in(&files[..1], LOADER), None);
    }

    #[test]
    fn a_program_is_a_file_in_bin_or_sbin() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/sbin")).unwrap();
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::write(root.path().join("usr/sbin/ip"), "").unwrap();
        symlink("../usr/sbin/ip", root.path().join("bin/ip")).unwrap();
        let files = walk(root.path()).unwrap();
        assert_eq!(program_in(&files, "ip"), Some(root.path().join("usr/sbin/ip")));
        assert_eq!(program_in(&files, "p"), None);
    }

    #[test]
    fn a_directory_is_listed_before_its_files() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("b")).unwrap();
        fs::write(root.path().join("b/c"), "").unwrap();
        fs::write(root.path().join("a"), "").unwrap();
        symlink(".", root.path().join("usr")).unwrap();
        let names = ["", "a", "b", "b/c", "usr"].map(|name| root.path().join(name));
        let files = walk(root.path()).unwrap();
        assert!(files.iter().zip(&names).all(|(file, name)| file == name), "{files:?}");
        assert_eq!(files.len(), names.len());
    }
}
