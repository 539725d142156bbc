# Portolan: `make demo` shows it, `make test` proves it. See README.md.

PREFIX   ?= /usr/local
DESTDIR  ?=
STRIP    ?= strip
CARGO    ?= cargo
TOOLS    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/portolan-tools
TARGET   := $(or $(CARGO_TARGET_DIR),target)
RELEASE  := $(TARGET)/release
SUDO     := $(if $(filter 0,$(shell id -u)),,sudo)
HEADERS  := $(addprefix crates/portolan/include/,portolan.h portolan_matched.h portolan_onesided.h) crates/atoll/include/atoll.h $(addprefix crates/bsp/include/,bsp.h mcbsp.h)
PACKAGES := clang ethtool gcc g++ iproute2 libbpf-dev libc6-dev make openssh-client pkg-config ucx-utils valgrind
# What tests set beside us, look at our work with, run jobs over (an sshd), write a second implementation of the protocol in, or compile programs in Fortran with.
TEST_PACKAGES := chromium cmake gfortran hpcc libfabric-bin libfabric-dev libmpich-dev libopenmpi-dev libpmix-dev man-db mandoc mpich netpipe-mpich2 netpipe-openmpi openmpi-bin openssh-server python3 python3-cryptography python3-mpi4py scalapack-mpi-test slurm-wlm systemd
# What `make deb` needs.
DEB_PACKAGES := debhelper dpkg-dev lintian

.PHONY: all build examples install uninstall deb deb-deps demo check test test-kernels lint deny headers size instructions fuzz sanitize soak deps test-deps clean help demo-programs

all: build

help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# $(call install_missing,PACKAGES): those that are missing.
install_missing = missing=; for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then echo "installing:$$missing"; \
	  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

deps: ## Installs the Debian packages that building needs, if missing.
	@$(call install_missing,$(PACKAGES))
	@command -v $(CARGO) >/dev/null || { echo "Rust is missing: install it from https://rustup.rs, then run make again" >&2; exit 1; }

test-deps: ## Installs the Debian packages that testing needs too, if missing.
	@$(call install_missing,$(TEST_PACKAGES) $(DEB_PACKAGES))

build: deps ## Builds target/release/portolan, the libraries and the provider of libfabric.
	$(CARGO) build --release --locked -p portolan-cli -p portolan-library -p portolan-ofi
	$(MAKE) --no-print-directory -C crates/library TARGET=$(abspath $(TARGET))
	$(MAKE) --no-print-directory -C crates/ofi TARGET=$(abspath $(TARGET))

examples: build ## Builds the examples in target/release/examples.
	$(call rust_examples,-p portolan-bsp,$(basename $(notdir $(wildcard examples/rust/*.rs))))
	$(MAKE) --no-print-directory -C examples/c TARGET=$(abspath $(TARGET))
	$(MAKE) --no-print-directory -C examples/bsp TARGET=$(abspath $(TARGET))

# $(call rust_examples,PACKAGES,NAMES) builds examples in Rust without LTO, which takes more
# than a minute for each program.
define rust_examples
$(CARGO) build --profile examples --locked -p portolan $(1) $(addprefix --example ,$(2))
@mkdir -p $(RELEASE)/examples
@ln -f $(addprefix $(TARGET)/examples/examples/,$(2)) $(RELEASE)/examples/
endef

install: ## Installs command, libraries, headers, man pages, documents and examples under PREFIX (/usr/local), which must be built.
	@$(INSTALLER) install

uninstall: ## Removes what install put there.
	@$(INSTALLER) uninstall

INSTALLER = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' RELEASE='$(RELEASE)' STRIP='$(STRIP)' scripts/install.sh

deb: build deb-deps ## Builds Debian packages in target/deb, without the network.
	scripts/deb.sh build $(abspath $(TARGET))
	scripts/deb.sh lint $(abspath $(TARGET))

deb-deps:
	@$(call install_missing,$(DEB_PACKAGES))

demo: demo-programs ## Shows in a minute what gets faster, what survives, and how long a message takes.
	PATH="$(abspath $(RELEASE)):$$PATH" $(SUDO) env "PATH=$(abspath $(RELEASE)):$$PATH" scripts/demo.sh $(abspath $(RELEASE))

demo-programs: build
	$(call rust_examples,,heat samplesort steps)

check: ## Runs the tests that need neither root nor Debian packages: Rust and a C compiler will do.
	scripts/test.sh check

test: deps test-deps lint demo-programs ## Runs all tests. Those that need root run as root.
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" CARGO_TARGET_DIR=$(abspath $(TARGET)) scripts/test.sh

lint: deps headers deny ## Formatting, clippy, licences, headers, names, messages of commits.
	scripts/words.sh
	scripts/commits.sh
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

size: ## Lines of each crate without tests; in the second column without comments and blank lines.
	@python3 scripts/size.py

headers:
	@scripts/version.sh check
	@for std in "$(CC) -x c -std=c99" "g++ -x c++ -std=c++17"; do \
	  for header in $(HEADERS); do echo "$$(basename $$header) with $$std"; \
	  echo "#include <$$(basename $$header)>" | $$std -Wall -Wextra -Werror -pedantic -fsyntax-only -I$$(dirname $$header) - || exit 1; done; done

# Without optimizations: it runs for seconds, and with them it compiles for many minutes.
$(TOOLS)/bin/cargo-deny: export CARGO_PROFILE_RELEASE_OPT_LEVEL = 0
$(TOOLS)/bin/cargo-deny: export CARGO_PROFILE_RELEASE_LTO = off
$(TOOLS)/bin/cargo-deny: export CARGO_PROFILE_RELEASE_CODEGEN_UNITS = 16
$(TOOLS)/bin/cargo-deny:
	$(CARGO) install cargo-deny --locked --root $(TOOLS) --target-dir $(TOOLS)/target
	rm -rf $(TOOLS)/target

deny: $(TOOLS)/bin/cargo-deny
	$(TOOLS)/bin/cargo-deny --locked check licenses bans sources
	@mkdir -p $(TARGET)
	@timeout 60 $(TOOLS)/bin/cargo-deny --locked check advisories 2>$(TARGET)/advisories.log || { \
	  if grep -qE '^error\[(vulnerability|unmaintained|unsound|yanked|notice)' $(TARGET)/advisories.log; then cat $(TARGET)/advisories.log; exit 1; fi; \
	  echo "*** ADVISORIES DID NOT RUN: their database cannot be reached from here ***"; }

instructions: deps ## Counts instructions of one send and receipt (callgrind), against the golden file.
	$(CARGO) build --release --locked -p portolan-runtime --example instructions
	scripts/instructions.sh $(abspath $(RELEASE))

fuzz: ## Fuzzes packets, protocol, matcher, exchange, and what agents and services are told (nightly, cargo-fuzz).
	scripts/fuzz.sh

sanitize: ## Address sanitizer over rings, links and the C interface (nightly).
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" CARGO_TARGET_DIR=$(abspath $(TARGET)) scripts/sanitize.sh

soak: build ## 1,000 jobs, as many of an MPI, and 2,000 processes without a launcher, a third of them hit by a kill; 500 kills over host ports; 20 cut networks; MTUs that dip; stopped launchers; 100,000 simulator seeds.
	$(CARGO) build --release --locked -p portolan-cli -p portolan --example ring --example stream --example together
	scripts/soak-jobs.sh $(abspath $(RELEASE))
	scripts/soak-kills.sh $(abspath $(RELEASE))
	scripts/soak-cuts.sh $(abspath $(RELEASE))
	scripts/soak-mtu.sh $(abspath $(RELEASE))
	scripts/soak-stops.sh $(abspath $(RELEASE))
	CROWD=1000 $(CARGO) test --release --locked -p portolan --test crowd
	$(CARGO) run --release --locked -p portolan-sim --bin soak -- --seeds 100000
	$(CARGO) run --release --locked -p portolan-sim --bin soak -- --seeds 20000 --from 13194139533312

test-kernels: deps ## Links, engine, node service and jobs on Debian 12's kernels, in virtual machines; by hand, an hour or so.
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" CARGO_TARGET_DIR=$(abspath $(TARGET)) scripts/test-kernels.sh

clean: ## Removes what was built.
	$(CARGO) clean
