//! Debian's packages of any suite, downloaded and unpacked: apt with lists of its own, as any user.

use crate::mirror::{Mirror, Release};
use crate::program::{call, has, is_root, printed, program, words};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// apt with lists and archives below a guest's new directory.
pub(super) struct Apt {
    directory: PathBuf,
    /// What the last command printed.
    log: PathBuf,
    mirror: Mirror,
}

/// What counts as installed: nothing. This system may have a version that the mirror's suite has
/// not.
const NOTHING_INSTALLED: [&str; 2] = ["-o", "Dir::State::status=/dev/null"];

impl Apt {
    /// Returns apt with the mirror that this host uses. It has no lists yet.
    ///
    /// # Errors
    /// This is no Debian, or apt knows no mirror of its release.
    pub(super) fn of_this_host(new: &Path) -> Result<Self> {
        if !has("apt-get") {
            bail!("needs Debian packages, and there is no apt-get");
        }
        let release = Release::of_this_host();
        if release.distribution != "debian" || release.suite.is_empty() {
            let distribution = &release.distribution;
            let found = if distribution.is_empty() { "unknown" } else { distribution };
            bail!("needs Debian packages, this is {found}");
        }
        let mirror = release.mirror().context("needs a mirror")?;
        let directory = new.join("apt");
        fs::create_dir_all(directory.join("lists/partial"))?;
        fs::create_dir_all(directory.join("archives/partial"))?;
        Ok(Self { directory, log: new.join("log"), mirror })
    }

    /// Returns the name of this host's release.
    pub(super) fn suite(&self) -> &str {
        &self.mirror.suite
    }

    /// Fetches the lists of these suites, in place of those of others.
    ///
    /// # Errors
    /// The mirror has not all of them, or cannot be reached.
    pub(super) fn update(&self, suites: &str) -> Result<()> {
        let uri = &self.mirror.uri;
        fs::write(self.directory.join("list.sources"), sources(uri, suites))?;
        let user = if is_root() { "root".to_owned() } else { printed(&mut words("id -un"))? };
        fs::write(self.directory.join("conf"), configuration(&self.directory, &user))?;
        self.logged(&mut self.command("apt-get -qq update"), || format!("{uri} with {suites}"))
    }

    /// Downloads packages themselves, without what they depend on.
    ///
    /// # Errors
    /// The mirror does not have one of them.
    pub(super) fn download<N: AsRef<str>>(&self, packages: &[N]) -> Result<()> {
        let names: Vec<&str> = packages.iter().map(AsRef::as_ref).collect();
        let mut command = self.command("apt-get -qq");
        command.args(NOTHING_INSTALLED).arg("download").args(&names);
        command.current_dir(self.archives());
        self.logged(&mut command, || format!("the packages {}", names.join(" ")))
    }

    /// Downloads a package and all it depends on. A story's world has what was downloaded, and what
    /// this system has besides may be missing there, or may go away. The C library is this
    /// system's, because its dynamic loader starts the programs and takes no other one.
    ///
    /// # Errors
    /// The mirror does not have all of it.
    pub(super) fn complete(&self, package: &str, options: &[&str]) -> Result<()> {
        let mut command = self.command("apt-get -qq --yes --download-only");
        command.args(NOTHING_INSTALLED).args(options).args(["install", package]);
        self.logged(&mut command, || [options, &[package]].concat().join(" "))?;
        for archive in self.downloaded()? {
            let name = archive.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("libc6_") {
                fs::remove_file(&archive)?;
            }
        }
        Ok(())
    }

    /// Returns the libraries that programs of packages take.
    ///
    /// # Errors
    /// apt-cache fails.
    pub(super) fn libraries_of(&self, packages: &[&str]) -> Result<Vec<String>> {
        let options = "apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts \
                       --no-breaks --no-replaces --no-enhances --no-pre-depends";
        Ok(libraries_in(&printed(self.command(options).args(packages))?))
    }

    /// Returns the first package on which another depends.
    ///
    /// # Errors
    /// The mirror does not have it.
    pub(super) fn dependency_of(&self, package: &str) -> Result<String> {
        let text = printed(self.command("apt-cache depends").arg(package))?;
        let first = field(&text, "Depends").map(str::to_owned);
        first.with_context(|| format!("needs what {package} depends on, and it depends on nothing"))
    }

    /// Returns the version of a package; `None` if the mirror does not have it.
    pub(super) fn version_of(&self, package: &str) -> Option<String> {
        let text = printed(self.command("apt-cache show").arg(package)).ok()?;
        field(&text, "Version").map(str::to_owned)
    }

    /// Returns the mirror's URI.
    pub(super) fn uri(&self) -> &str {
        &self.mirror.uri
    }

    /// Lays out all downloaded packages in a directory, which ends them. Of two versions of a
    /// library, the one that sorts last remains under its common name, in every run.
    ///
    /// # Errors
    /// A package is damaged, or the disk is full.
    pub(super) fn unpack(&self, directory: &Path) -> Result<()> {
        for archive in self.downloaded()? {
            call(program("dpkg-deb").arg("-x").arg(&archive).arg(directory))?;
            fs::remove_file(archive)?;
        }
        Ok(())
    }

    /// Removes lists, archives and log.
    ///
    /// # Errors
    /// They cannot be removed.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_dir_all(self.directory)?;
        Ok(fs::remove_file(self.log)?)
    }

    fn archives(&self) -> PathBuf {
        self.directory.join("archives")
    }

    fn downloaded(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.archives())?.map(|entry| Ok(entry?.path()));
        let mut archives = entries.collect::<Result<Vec<_>>>()?;
        archives.retain(|path| path.extension().is_some_and(|ending| ending == "deb"));
        archives.sort();
        Ok(archives)
    }

    /// Returns a command of words that reads this configuration.
    fn command(&self, line: &str) -> Command {
        let mut command = words(line);
        command.env("APT_CONFIG", self.directory.join("conf"));
        command
    }

    /// Runs a command; if it fails, its last line is the reason why what is `needed` cannot be had.
    fn logged(&self, command: &mut Command, needed: impl Fn() -> String) -> Result<()> {
        let log = File::create(&self.log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if call(command).is_err() {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("needs {}: {}", needed(), text.lines().last().unwrap_or("apt-get says nothing"));
        }
        Ok(())
    }
}

fn sources(uri: &str, suites: &str) -> String {
    format!(
        "\
Types: deb
URIs: {uri}
Suites: {suites}
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"
    )
}

fn configuration(apt: &Path, user: &str) -> String {
    let apt = apt.display();
    format!(
        r#"Dir::Etc::sourcelist "{apt}/list.sources";
Dir::Etc::sourceparts "-";
Dir::State::lists "{apt}/lists";
Dir::State::extended_states "{apt}/extended";
Dir::Cache "{apt}";
Dir::Cache::archives "{apt}/archives";
APT::Sandbox::User "{user}";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Debug::NoLocking "true";
"#
    )
}

/// Returns the libraries in a list of recursive dependencies, in which a package starts a line.
/// Those of other architectures are left out, and libelogind0, another one that calls itself
/// libsystemd.
fn libraries_in(dependencies: &str) -> Vec<String> {
    let libraries = dependencies.lines().filter(|line| line.starts_with("lib"));
    let ours = libraries.filter(|name| !name.contains(':') && !name.contains("libelogind"));
    ours.map(str::to_owned).collect()
}

/// Returns the first value of a field.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_packages_of_this_architecture_named_so() {
        let dependencies = "\
bash
  Depends: base-files
libtinfo6
  Depends: libc6
libc6:i386
libelogind0
<libsystemd-shared>
libsystemd0
zlib1g";
        assert_eq!(libraries_in(dependencies), ["libtinfo6", "libsystemd0"]);
    }

    #[test]
    fn the_first_of_a_field_is_that_of_the_newest_package() {
        let shown = "Package: user-mode-linux\nVersion: 7.2-1\n\nVersion: 6.1-1\n";
        assert_eq!(field(shown, "Version"), Some("7.2-1"));
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-9-cloud-amd64\n";
        assert_eq!(field(depends, "Depends"), Some("linux-image-6.1.0-9-cloud-amd64"));
        assert_eq!(field("", "Version"), None);
    }

    #[test]
    fn apt_reads_only_its_own_lists() {
        let configuration = configuration(Path::new("/new/apt"), "root");
        assert!(configuration.contains("Dir::Etc::sourcelist \"/new/apt/list.sources\";\n"));
        assert!(configuration.contains("Dir::Etc::sourceparts \"-\";\n"));
        assert!(configuration.contains("APT::Sandbox::User \"root\";\n"));
        assert!(sources("http://a/", "sid").contains("URIs: http://a/\nSuites: sid\n"));
    }
}
