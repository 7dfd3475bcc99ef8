# Tasks of this tree. Recipes call scripts, which can also be called by hand. CARGO_TARGET_DIR is
# respected everywhere.

SECONDS ?= 600

# Runs of each story of `make flaky`.
TIMES ?= 20

# Samples of each switch and case of `make bench-peers`.
ROUNDS ?= 5

.PHONY: help demo test fresh flaky lint audit docs bench bench-workers bench-noise bench-peers fuzz prove-faults schemathesis packages clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## Measure RSC on against off on this host, with a table and a report
	@scripts/demo

test: ## Run all checks and tests, cheapest first; ends with `N passed, N failed, N skipped`
	@scripts/setup test && cargo xtask test

fresh: ## Run `make demo` and `make test` in a bare root, with nothing of this host but Rust
	@scripts/fresh

flaky: ## Run each story TIMES=20 times on a busy machine, and name those that failed once
	@scripts/setup test && scripts/flaky $(TIMES)

lint: ## Check format, spelling, licences, dependencies, lints and documents
	@scripts/setup lint && cargo xtask test lint

audit: ## Check the dependencies for known vulnerabilities; fetches a database
	@scripts/setup lint && PATH="$${CARGO_TARGET_DIR:-target}/tools/bin:$$PATH" cargo-deny check advisories

docs: ## Build the documentation of all crates
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: ## Count the instructions of the data path
	@scripts/bench

bench-workers: ## Measure two workers against one, between memory ports
	@scripts/bench-workers

bench-noise: ## Measure what victims lose beside attackers on one worker
	@scripts/bench-noise

bench-peers: ## Measure Millrace against testpmd and OVS-DPDK, ROUNDS=5 samples each
	@scripts/bench-peers --rounds $(ROUNDS)

fuzz: ## Fuzz all targets, SECONDS=600 each
	@scripts/setup fuzz && fuzz/run $(SECONDS)

prove-faults: ## Put each fault of fuzz/faults back and time until its fuzz target finds it, SECONDS=600 at most
	@fuzz/prove $(SECONDS)

schemathesis: ## Make requests from the OpenAPI document and check every answer
	@scripts/setup lint && scripts/schemathesis

packages: ## Build a .deb and an .rpm into target/packages
	@scripts/setup packages && scripts/packages

clean: ## Remove what was built
	@cargo clean
