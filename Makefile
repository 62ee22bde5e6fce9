.PHONY: help setup build release prove-release demo bench test test-pooler lint deps kit docs image-tree sbom openapi screenshots client fuzz-api upgrade-test night check clean
.DEFAULT_GOAL := help

# Directory of cargo's build output.
target := $(or $(CARGO_TARGET_DIR),$(CARGO_BUILD_TARGET_DIR),target)

# DISPATCHQ_TEST_BROWSER=off skips the browser tests, for machines without a browser.
without_browser := $(if $(filter off,$(DISPATCHQ_TEST_BROWSER)),-E 'not test(/^browser::/)')

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## Install what is missing: redis-server, Postgres, PgBouncer, Prometheus, Chromium, oidc-provider, cargo-nextest (starts no daemon)
	@scripts/setup

build: ## Build target/release/dispatchq, for production and measurements
	cargo build --locked --release -p dispatchq

release: ## Build the files of a release into target/release-kit (BINARY=FILE: with this binary instead of compiling)
	@scripts/setup --release
	@scripts/release $(PARTS)

prove-release: ## Test the files of target/release-kit on clean systems, without a network (4 minutes; sudo env PATH="$PATH" HOME="$HOME" make prove-release)
	@scripts/setup --release
	@scripts/prove-release

# A debug build takes a quarter of the time of a release build and is fast enough for the sample.
demo: setup ## Replay a built-in sample of orders and print the result (builds target/debug/dispatchq)
	cargo build --locked -p dispatchq
	$(target)/debug/dispatchq replay --sample

bench: setup build ## Compare the queue, also as a backend of apalis, with stock apalis-redis; the last line is a JSON object
	cargo build --locked --release -p bench-peers
	@$(target)/release/dispatchq bench queue --json --peer $(target)/release/bench-peers --peer $(target)/release/queue-storage

test: setup ## Run all tests on private Redis and Postgres servers (DISPATCHQ_TEST_BROWSER=off: without a browser)
	NEXTEST_PROFILE=$${NEXTEST_PROFILE:-$$(scripts/test-profile)} cargo nextest run --locked --workspace $(without_browser)
	cargo test --locked --doc --workspace
	@$(if $(without_browser),echo "The browser tests of the console were skipped: DISPATCHQ_TEST_BROWSER=off.",:)

# Nextest filter for the tests that use the pooler.
not_pooled = $$(sed -n -e 's/^\([a-z-]*\) \(.*::\)$$/(package(=\1) \& test(\/^\2\/))/p' -e t -e 's/^\([a-z-]*\) \(.*\)/(package(=\1) \& test(=\2))/p' \
	tests/pooler/left-out | paste -sd '|' -)
pooled = binary(it) and not ($(not_pooled))$(if $(filter off,$(DISPATCHQ_TEST_BROWSER)), and not test(/^browser::/))

test-pooler: setup ## Run the tests through PgBouncer in transaction mode, without the tests in tests/pooler/left-out
	DISPATCHQ_TEST_POOLER=on NEXTEST_PROFILE=$${NEXTEST_PROFILE:-$$(scripts/test-profile)} cargo nextest run --locked --workspace -E "$(pooled)"

lint: ## Check formatting and lints
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked -p dispatchq --no-default-features --lib --bins -- -D warnings

deps: ## Check the dependencies: licences, sources, bans, known vulnerabilities, unused crates
	@scripts/setup --checks
	@scripts/check-deps

kit: ## Check the files of deploy/ (image, Compose, Helm chart, systemd) and the documents' site (installs linters in the cache folder)
	@scripts/check-kit
	@scripts/check-docs

docs: ## Build the documents' site, target/docs/latest/index.html (installs mkdocs in the cache folder)
	@scripts/build-docs $(target)/docs

image-tree: ## Create target/image, the complete file tree of the image, and check that it is below 65 MB (release build)
	cargo build --locked --release --no-default-features -p dispatchq --bin dispatchq
	strip -o $(target)/image-binary $(target)/release/dispatchq
	rm -rf $(target)/image
	@scripts/image-tree $(target)/image-binary $(target)/image

sbom: ## Write the list of the binary's crates to target/dispatchq.cdx.json (CycloneDX)
	@scripts/sbom $(target)/dispatchq.cdx.json

openapi: ## Write target/openapi.json, the API document of a release
	mkdir -p $(target)
	OPENAPI_TO=$(abspath $(target))/openapi.json cargo nextest run --locked -p api document_names_its_release

screenshots: setup ## Take the screenshots of docs/CONSOLE.md again during a replay of the sample (some minutes)
	cargo nextest run --locked -p dispatchq --run-ignored only pictures_of_the_sample

client: setup ## Build the clients for Python, Node, Go and Rust; each is installed without a network, runs its sample and follows an order (needs golang-go)
	cargo build --locked -p dispatchq
	@scripts/build-clients $(target)/clients $(target)/debug/dispatchq
	@scripts/prove-clients $(target)/clients $(target)/debug/dispatchq

fuzz-api: setup ## Test every operation of the API as each role with Schemathesis (EXAMPLES=10 for each operation; some minutes)
	cargo build --locked -p dispatchq
	@scripts/check-api $(target)/debug/dispatchq

upgrade-test: setup ## Run the previous version next to this one under load: upgrade, rollback, upgrade (REF=COMMIT; two release builds, then 4 minutes)
	@scripts/upgrade-test $(REF)

night: setup build ## Run the longest tests, prove a release, then the measurements in real time: job id alerts, silent and slow partners (as root; the measurements take up to 80 minutes)
	cargo nextest run --locked -p dispatchq --test it --ignore-default-filter -E 'not default()'
	$(MAKE) release
	$(MAKE) prove-release
	scripts/night $(target)/release/dispatchq $(target)/night

check: lint deps kit test ## Run all checks that a change must pass
	@scripts/build-clients $(target)/clients $(target)/debug/dispatchq
	@scripts/prove-clients $(target)/clients $(target)/debug/dispatchq

clean: ## Remove the build output; data of `dev` in .dispatchq stays
	cargo clean
