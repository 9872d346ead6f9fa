# Everything that can be done here; `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
SITE := build/site-tools
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
# Modules are compiled when they are first imported: most never are.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# What a host under test needs, what builds the image, and what the tests use. One list: setup installs it,
# and prints it where it may not.
PACKAGES := python3-venv qemu-system-x86 bubblewrap openssh-client iproute2 e2fsprogs util-linux tar zstd \
	mmdebstrap erofs-utils debian-archive-keyring
TEST_PACKAGES := openssh-server chromium cpio jq libvirt0 libxml2-utils fdisk xfsprogs btrfs-progs qemu-utils \
	runc golang-github-containers-common tcsh smbclient
# Where no guest boots with KVM, a demonstration of three rounds.
RUN := --yes --or-demo

.PHONY: help setup setup-test run test unit check lint bench lock reference picture site proofs prove prove-tests prove-variations prove-machines \
	prove-first-time prove-live prove-ownership prove-fleet prove-fleet-load prove-guests prove-planted prove-clones prove-kvm prove-described prove-commands prove-large prove-lab prove-reboots prove-network prove-migration prove-postgresql prove-windows-pack prove-cuts hostile \
	torture prove-deb deb clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

setup: $(STAMP) ## system packages (apt, as root), virtual environment, vmtax itself
	@./tools/packages $(PACKAGES)

setup-test: setup $(DEV_STAMP)
	@./tools/packages $(TEST_PACKAGES)

$(STAMP): pyproject.toml requirements-run.lock src/vmtax/__init__.py
	@./tools/packages $(PACKAGES)
	@./tools/python -m venv $(VENV)
	@echo "installing Python packages into $(VENV)"
	@$(PIP_INSTALL) --require-hashes --requirement requirements-run.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV_STAMP): $(STAMP) requirements-dev.lock
	@echo "installing Python packages for tests into $(VENV)"
	@$(PIP_INSTALL) --require-hashes --requirement requirements-dev.lock
	@touch $@

run: setup ## measure this machine, print the answer, write the HTML report; RUN="disk-cache" measures that plan
	@$(BIN)/vmtax run $(RUN)

test: setup-test ## all that a change must not break, with QEMU, bridges, SSH and a browser: ends with what failed
	@$(BIN)/vmtax image build
	@$(BIN)/python -m tools.run_tests

unit: $(DEV_STAMP) ## the unit tests alone
	@$(BIN)/python -m tools.run_tests unit

check: lint unit ## format, lint, strict types, unit tests

lint: $(DEV_STAMP) ## format, lint, strict types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: setup-test ## print the figures that are watched: start-up, show, report, guest boot, what meters cost
	@$(BIN)/python tools/bench.py

lock: ## write requirements-*.lock anew: the newest Python packages that pyproject.toml allows
	@./tools/lock

reference: $(DEV_STAMP) ## write docs/reference and the man page anew from the code
	@$(BIN)/python tools/reference.py

picture: $(DEV_STAMP) ## draw README's picture anew
	@$(BIN)/python -m tools.picture

# In an environment of its own, which nothing else needs.
$(SITE)/.installed: requirements-site.lock
	@./tools/python -m venv $(SITE)
	@echo "installing mkdocs-material into $(SITE), 150 MB"
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement $<
	@touch $@

site: $(SITE)/.installed ## build the documentation as a site in build/site; its links are checked
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict
	@echo "built: build/site/index.html; with its search: python3 -m http.server -d build/site"

# Proofs take long, so each is a target of its own. `covers` names what it is about: a proof is stale when that changed
# after it last passed, which tests/proofs.tsv records. A change to a machine, a disk or the guard is not finished before.
# RECORD=no only runs it.
PROOF = $(if $(filter no,$(RECORD)),env,$(BIN)/python -m tools.proofs run $@)

proofs: $(DEV_STAMP) ## list the proofs: when each last passed, and what changed since
	@$(BIN)/python -m tools.proofs list

# covers: src/vmtax/stats src/vmtax/design src/vmtax/analysis requirements-run.lock tools/prove
prove: $(DEV_STAMP) ## show that the statistics hold what they promise: simulated machines, a table of bars
	@$(PROOF) $(BIN)/python -m tools.prove

# covers: src/vmtax tests/unit tests/command.py tools/run_tests.py tools/prove_tests.py tools/faults.py
prove-tests: $(DEV_STAMP) ## show that the tests can fail: plants mistakes in decisions, one line each, in 100 modules
	@$(PROOF) $(BIN)/python -m tools.prove_tests

# covers: src/vmtax tests/unit tests/conftest.py tools/run_tests.py
prove-variations: setup-test ## the unit tests that take long: cases beside those in `make test`
	@$(PROOF) $(BIN)/python -m tools.run_tests variations

# covers: src/vmtax/core src/vmtax/machine src/vmtax/storage src/vmtax/network src/vmtax/hypervisor src/vmtax/container src/vmtax/image src/vmtax/lab src/vmtax/meter src/vmtax/testbed src/vmtax/experiment src/vmtax/workload src/vmtax/store tests/integration tools/run_tests.py
prove-machines: setup-test ## the tests that take long: labs, packs, a second host, and the variations of those in `make test`
	@./tools/packages postgresql pgbouncer ansible-core systemd wine wine64 gcc-mingw-w64-x86-64-posix \
		gcc libc6-dev
	@$(BIN)/vmtax image build
	@$(BIN)/vmtax image zfs
	@$(BIN)/vmtax image kernel
	@$(BIN)/vmtax image windows
	@$(PROOF) $(BIN)/python -m tools.run_tests machines

# covers: src/vmtax/image tools/packages tools/with_locks tools/python tools/pristine Makefile requirements-run.lock requirements-dev.lock
prove-first-time: $(DEV_STAMP) ## `make prove-machines` in a new Debian with empty caches: all packages, the image and the packs are new
	@$(PROOF) tools/pristine make prove-machines RECORD=no

# covers: src/vmtax/machine src/vmtax/hypervisor src/vmtax/storage src/vmtax/testbed src/vmtax/experiment src/vmtax/analysis src/vmtax/stats src/vmtax/workload/fio.py tools/prove_live.py
prove-live: setup-test ## show that a planted cost is measured with real guests: -3 %, -10 %, -50 %, none
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_live

# covers: src/vmtax/machine src/vmtax/store src/vmtax/experiment src/vmtax/testbed/session/exclusive.py src/vmtax/cli/measuring.py tools/prove_ownership.py
prove-ownership: setup-test ## show that a run has one owner and a host one measurement: others try, and 50 kills
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_ownership

# covers: src/vmtax/store src/vmtax/fleet src/vmtax/cli/commands/fleet.py src/vmtax/cli/fleets.py src/vmtax/cli/fleet_task.py src/vmtax/cli/measuring.py src/vmtax/testbed/session/exclusive.py tests/postgresql.py tools/prove_fleet.py tools/score.py
prove-fleet: setup-test ## show that a fleet is measured once, whoever is killed: six hosts, two controllers, a real PostgreSQL
	@./tools/packages postgresql ansible-core iproute2
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_fleet

# covers: src/vmtax/store src/vmtax/cli/fleet_task.py src/vmtax/cli/many.py src/vmtax/analysis/many tests/postgresql.py tools/prove_fleet_load.py
prove-fleet-load: setup-test ## show what a thousand hosts ask of one PostgreSQL: lag, memory, connections, and what breaks first
	@./tools/packages postgresql
	@$(PROOF) $(BIN)/python -m tools.prove_fleet_load

# covers: src/vmtax/attach src/vmtax/testbed/subjects/existing.py src/vmtax/testbed/session/ways.py src/vmtax/testbed/layers/existing.py src/vmtax/machine tests/owners_vm.py tools/prove_guests.py tools/score.py tests/proxmox tools/prove_odd.py tools/prove_proxmox.py tools/prove_userland.py
prove-guests: setup-test ## show that a VM of the user's is measured as it runs, and left as it was: a real libvirt, 16 kills
	@./tools/packages libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients qemu-utils
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_guests --part guests

# covers: src/vmtax/attach src/vmtax/testbed/subjects/existing.py src/vmtax/testbed/session/ways.py src/vmtax/testbed/layers/existing.py src/vmtax/machine tests/owners_vm.py tools/prove_guests.py tools/score.py src/vmtax/testbed/session/cloning.py src/vmtax/testbed/layers/clone.py src/vmtax/existing tools/prove_planted.py tools/prove_limits.py
prove-planted: setup-test ## show that bad settings planted in a VM are named first, and that what vmtax says to type makes their cost vanish
	@./tools/packages libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients qemu-utils
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_guests --part planted

# covers: src/vmtax/attach src/vmtax/testbed/subjects/existing.py src/vmtax/testbed/session/ways.py src/vmtax/testbed/layers/existing.py src/vmtax/machine tests/owners_vm.py tools/prove_guests.py tools/score.py src/vmtax/testbed/session/cloning.py src/vmtax/testbed/layers/clone.py tools/prove_clones.py
prove-clones: setup-test ## show that clones of a user's VM are measured with other settings, and it is left as it was: a real libvirt, 13 kills
	@./tools/packages libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients qemu-utils
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_guests --part clones

# covers: src/vmtax/attach src/vmtax/existing src/vmtax/testbed/subjects/existing.py src/vmtax/testbed/session/ways.py src/vmtax/testbed/session/cloning.py src/vmtax/testbed/session/watching.py src/vmtax/testbed/layers/existing.py src/vmtax/testbed/layers/clone.py src/vmtax/machine tests/owners_vm.py tests/owners_host.py tools/prove_kvm.py tools/prove_guests.py tools/prove_clones.py tools/score.py
prove-kvm: setup-test ## show that VMs of a remote host with KVM, libvirt and AppArmor are measured and cloned, and left as they were: 12 kills
	@./tools/packages qemu-utils
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_kvm

# covers: src/vmtax/existing tests/existing/libvirt tools/prove_described.py tools/score.py
prove-described: setup-test ## show that XML of domains, and the command lines that libvirt makes of it, are read as the same guests
	@./tools/packages libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients qemu-utils
	@$(PROOF) $(BIN)/python -m tools.prove_described

# covers: src/vmtax/workload/command.py src/vmtax/workload/inside.py src/vmtax/image/additions.py src/vmtax/image/build.py src/vmtax/testbed/host/additions.py src/vmtax/cli/own_program.py docs/how-to/your-own-program.md tools/prove_commands.py tools/score.py
prove-commands: setup-test ## show that a program of the user's own is measured on every layer: the examples of the page, and bad ones
	@$(PROOF) $(BIN)/python -m tools.prove_commands

# covers: src/vmtax/core src/vmtax/store src/vmtax/analysis src/vmtax/stats src/vmtax/report tests/sample.py tools/prove_large.py
prove-large: $(DEV_STAMP) ## show that runs of 100,000 trials are read in little memory
	@$(PROOF) $(BIN)/python -m tools.prove_large

# covers: src/vmtax/lab src/vmtax/machine src/vmtax/hypervisor src/vmtax/image tools/prove_lab.py
prove-lab: setup-test ## show that labs come up and keep what was flushed: 20 starts, 20 power cuts
	@$(PROOF) $(BIN)/python -m tools.prove_lab

# covers: src/vmtax/experiment src/vmtax/lab src/vmtax/machine src/vmtax/store src/vmtax/design/reboots.py tools/prove_reboots.py
prove-reboots: setup-test ## show that runs survive reboots of their host: a lab, rebooted and vmtax killed in between
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_reboots

# covers: src/vmtax/network src/vmtax/machine src/vmtax/testbed src/vmtax/lab tools/prove_network.py
prove-network: setup-test ## show that runs that are killed leave no trace of their networks: a lab, 20 kills
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_network

# covers: src/vmtax/network src/vmtax/machine src/vmtax/testbed src/vmtax/hypervisor src/vmtax/experiment/migrate.py tools/prove_migration.py
prove-migration: setup-test ## show that guests move between two hosts, with and without a virtual function: ten times each
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_migration

# covers: src/vmtax/machine src/vmtax/storage src/vmtax/image src/vmtax/hypervisor src/vmtax/testbed src/vmtax/experiment/durability.py src/vmtax/workload/durability tests/integration/test_postgresql.py tests/integration/conftest.py
prove-postgresql: setup-test ## show that committed transactions survive power cuts, and do not where flushes are ignored
	@$(BIN)/vmtax image build
	@$(BIN)/vmtax image postgresql
	@$(PROOF) $(BIN)/python -m pytest -m pack tests/integration

# covers: src/vmtax/image/packs.py src/vmtax/image/windows.py src/vmtax/image/windows-programs src/vmtax/image/vmtax-net.c src/vmtax/workload/chess.py src/vmtax/workload/fio.py src/vmtax/workload/transfer.py tools/prove_windows_pack.py
prove-windows-pack: setup-test ## show that the pack for Windows is built twice alike, and works as the image's programs do: under Wine
	@./tools/packages wine64 wine
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python -m tools.prove_windows_pack

# covers: src/vmtax/machine src/vmtax/storage src/vmtax/lab src/vmtax/hypervisor src/vmtax/testbed src/vmtax/experiment/durability.py src/vmtax/workload/durability tools/prove_cuts.py
prove-cuts: setup-test ## show what of a whole host survives its power cuts: a lab, and every kind of volume in it
	@$(BIN)/vmtax image build
	@$(BIN)/vmtax image zfs
	@$(PROOF) sh -c '$(BIN)/python -m tools.prove_cuts && $(BIN)/python -m tools.prove_cuts --raidz'

# covers: src/vmtax/cli src/vmtax/core src/vmtax/plan src/vmtax/design src/vmtax/workload src/vmtax/store src/vmtax/analysis src/vmtax/report src/vmtax/system src/vmtax/doctor src/vmtax/lab src/vmtax/machine src/vmtax/storage src/vmtax/meter src/vmtax/image src/vmtax/experiment tools/hostile tools/program.py
hostile: setup-test ## try bad input of every kind: plans, options, files, hosts; HOSTILE="plans --seed 7" picks
	@$(if $(HOSTILE),env,$(PROOF)) $(BIN)/python -m tools.hostile $(HOSTILE)

# covers: src/vmtax/machine src/vmtax/hypervisor src/vmtax/experiment src/vmtax/testbed src/vmtax/store src/vmtax/storage src/vmtax/network src/vmtax/cli tests/fake_testbed.py tools/torture.py
torture: setup-test ## kill runs at 1100 random points; prints what was lost or left: 0 and 0
	@$(BIN)/vmtax image build
	@$(PROOF) $(BIN)/python tools/torture.py

# covers: tools/deb tools/packages tools/with_locks tools/pristine tools/prove_deb.py requirements-run.lock Makefile pyproject.toml docs/reference/vmtax.1 src/vmtax/doctor
prove-deb: $(STAMP) ## show that a new Debian 12 and 13 build the package, install it, and remove it without a trace
	@$(PROOF) ./tools/python tools/prove_deb.py

deb: ## build dist/vmtax_*.deb for the Debian that this is run on
	@./tools/deb $(PACKAGES)

clean: ## remove the virtual environment and what tools cached here; never results or images
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
