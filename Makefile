# Tasks of this tree. Recipes call `cargo xtask` and scripts, which can also be called by hand.
# CARGO_TARGET_DIR is respected everywhere.

SECONDS ?= 600

# Runs of each story of `make flaky`.
TIMES ?= 20

# Samples of each switch and case of `make bench-peers`.
ROUNDS ?= 5

.PHONY: help rust demo test fresh flaky lint audit docs rustdoc bench bench-workers bench-noise bench-peers fuzz prove-faults schemathesis packages clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

# Cargo itself refuses a Rust that is older than `rust-version`.
rust:
	@command -v cargo >/dev/null || { \
	    wanted=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	    echo "Rust is missing: install Rust $$wanted or newer with your distribution or from https://rustup.rs" >&2; \
	    exit 1; }

demo: rust ## Measure RSC on against off on this host, within a minute of the build; FULL=1 takes four
	@FULL=$(FULL) scripts/demo

test: rust ## Run all checks and tests, cheapest first; ends with `N passed, N failed, N skipped`
	@cargo xtask setup test && cargo xtask test

fresh: rust ## Run `make demo` and `make test` in a bare root, with nothing of this host but Rust
	@cargo xtask fresh

flaky: rust ## Run each story TIMES=20 times on a busy machine, and name those that failed once
	@cargo xtask setup test && scripts/flaky $(TIMES)

lint: rust ## Check format, spelling, licences, dependencies, lints, documents and the book
	@cargo xtask setup lint && cargo xtask test lint

audit: rust ## Check the dependencies for known vulnerabilities; fetches a database
	@cargo xtask setup lint && PATH="$${CARGO_TARGET_DIR:-target}/tools/bin:$$PATH" cargo-deny check advisories

docs: rust ## Make the book of the documents, and open it if there is a desktop
	@cargo xtask setup docs && cargo xtask book open

rustdoc: rust ## Build the documentation of all crates
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: rust ## Count the instructions of the data path
	@scripts/bench

bench-workers: rust ## Measure two workers against one, between memory ports
	@scripts/bench-workers

bench-noise: rust ## Measure what victims lose beside attackers on one worker
	@scripts/bench-noise

bench-peers: rust ## Measure Millrace against testpmd and OVS-DPDK, ROUNDS=5 samples each
	@scripts/bench-peers --rounds $(ROUNDS)

fuzz: rust ## Fuzz all targets, SECONDS=600 each
	@cargo xtask setup fuzz && fuzz/run $(SECONDS)

prove-faults: rust ## Put each fault of fuzz/faults back and time until its fuzz target finds it, SECONDS=600 at most
	@fuzz/prove $(SECONDS)

schemathesis: rust ## Make requests from the OpenAPI document and check every answer
	@cargo xtask setup lint && scripts/schemathesis

packages: rust ## Build a .deb and an .rpm into target/packages
	@cargo xtask setup packages && cargo xtask packages

clean: ## Remove what was built
	@cargo clean
