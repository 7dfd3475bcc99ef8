//! End-to-end stories: the binary as its users run it, between hosts made of network namespaces.
//!
//! Each story lives in namespaces of its own (`sandbox`), so it needs no clean-up and leaves
//! nothing behind. A story that cannot run prints `skipped: needs …`. `MILLRACE_LONG=1` makes the
//! traffic stories long, and `MILLRACE=PATH` tests another binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an unwrap in a story is an assertion, and what it prints is read by people"
)]

mod access;
mod acl;
mod booted;
mod breakage;
mod bridge;
mod browser;
mod capture;
mod cni;
mod cni_chain;
mod compat;
mod container;
mod dhcp_server;
mod etcd;
mod fleet;
mod guards;
mod guest;
mod guests;
mod guide;
mod heard;
mod host;
mod hotplug;
mod idle;
mod kernel_path;
mod lab;
mod lab_guest;
mod lab_hosts;
mod lab_interop;
mod libvirt;
mod link;
mod log;
mod machines;
mod migrate;
mod migration;
mod mtu;
mod newcomer;
mod openapi;
mod outage;
mod ovs;
mod packages;
mod path_mtu;
mod qemu;
mod queues;
mod replay;
mod restart;
mod restricted;
mod runtime;
mod sandbox;
mod sessions;
mod setup;
mod shell;
mod shutdown;
mod switch;
mod systemd;
mod team;
mod testpmd;
mod topology;
mod traffic;
mod transfer;
mod tutorials;
mod uml;
mod unit;
mod unprivileged;
mod uplink;
mod uplink_restart;
mod validate;
mod veth;
mod vhost;
mod vmmq;
mod web;
mod xdp;
