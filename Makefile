# What can be done with this tree. Recipes call scripts, which can be called by hand as well.
# CARGO_TARGET_DIR is respected everywhere.

SECONDS ?= 600

# Samples of each switch and case of `make bench-peers`.
ROUNDS ?= 5

.PHONY: help demo test lint docs bench bench-peers fuzz clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## Measure RSC on against off on this host, with a table and a report
	@scripts/demo

test: ## Run all checks and tests, cheapest first; ends with `N passed, N failed, N skipped`
	@scripts/setup guests && scripts/test

lint: ## Check format, spelling, licences, lints and documents
	@scripts/setup && scripts/test lint

docs: ## Build the documentation of all crates
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: ## Count the instructions of the data path
	@scripts/bench

bench-peers: ## Measure Millrace against testpmd and OVS-DPDK, ROUNDS=5 samples each
	@scripts/bench-peers --rounds $(ROUNDS)

fuzz: ## Fuzz all targets, SECONDS=600 each
	@scripts/setup fuzz && fuzz/run $(SECONDS)

clean: ## Remove what was built
	@cargo clean
