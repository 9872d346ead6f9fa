# Everything that can be done here; `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
# Modules are compiled when they are first imported: most never are.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# What a host under test needs, what builds the image, and what the tests use. One list: setup installs it,
# and prints it where it may not.
PACKAGES := python3-venv qemu-system-x86 bubblewrap openssh-client iproute2 e2fsprogs util-linux tar zstd \
	mmdebstrap erofs-utils debian-archive-keyring
TEST_PACKAGES := openssh-server chromium cpio jq libvirt0 libxml2-utils fdisk xfsprogs btrfs-progs qemu-utils
# Where no guest boots with KVM, a demonstration of three rounds.
RUN := --yes --or-demo

.PHONY: help setup setup-test run test check lint bench prove prove-lab prove-live prove-reboots prove-network prove-migration prove-postgresql prove-cuts torture hostile lock reference picture clean

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

test: setup-test ## all tests, the real ones included (QEMU, bridges, SSH, browser)
	@$(BIN)/vmtax image build
	@# ZFS is built meanwhile: both halves of the integration tests would wait for it.
	@$(BIN)/vmtax image zfs > /dev/null & zfs=$$!; $(BIN)/python -m pytest --numprocesses 2 tests/unit && wait $$zfs
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m 'not alone and not pack' tests/integration
	@$(BIN)/python -m pytest -m alone tests/integration

check: lint ## format, lint, strict types, unit tests
	@$(BIN)/python -m pytest --quiet --numprocesses 2 tests/unit

lint: $(DEV_STAMP) ## format, lint, strict types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: setup ## print the figures that are watched: start-up, show, report, guest boot, what meters cost
	@$(BIN)/python tools/bench.py

prove: $(STAMP) ## show that the statistics hold what they promise: simulated machines, a table of bars
	@$(BIN)/python -m tools.prove

prove-live: setup ## show that a planted cost is measured with real guests: -3 %, -10 %, -50 %, none
	@$(BIN)/vmtax image build
	@$(BIN)/python -m tools.prove_live

lock: ## write requirements-run.lock and requirements-dev.lock anew: the newest Python packages that pyproject.toml allows
	@./tools/lock

reference: $(STAMP) ## write docs/reference and the man page anew from the code
	@$(BIN)/python tools/reference.py

picture: $(STAMP) ## draw README's picture anew
	@$(BIN)/python -m tools.picture

prove-lab: setup ## show that labs come up and keep what was flushed: 20 starts, 20 power cuts
	@$(BIN)/python -m tools.prove_lab

prove-reboots: setup ## show that runs survive reboots of their host: a lab, rebooted and vmtax killed in between
	@$(BIN)/vmtax image build
	@$(BIN)/python -m tools.prove_reboots

prove-network: setup ## show that runs that are killed leave no trace of their networks: a lab, 20 kills
	@$(BIN)/vmtax image build
	@$(BIN)/python -m tools.prove_network

prove-migration: setup ## show that guests move between two hosts, with and without a virtual function: ten times each
	@$(BIN)/vmtax image build
	@$(BIN)/python -m tools.prove_migration

prove-postgresql: setup ## show that committed transactions survive power cuts, and do not where flushes are ignored
	@$(BIN)/vmtax image build
	@$(BIN)/vmtax image postgresql
	@$(BIN)/python -m pytest -m pack tests/integration

prove-cuts: setup ## show what of a whole host survives its power cuts: a lab, and every kind of volume in it
	@$(BIN)/vmtax image build
	@$(BIN)/vmtax image zfs
	@$(BIN)/python -m tools.prove_cuts
	@$(BIN)/python -m tools.prove_cuts --raidz

hostile: setup ## try bad input of every kind: plans, options, files, hosts; prints tried and failed
	@$(BIN)/python -m tools.hostile $(HOSTILE)

torture: setup ## kill runs at 1100 random points; prints what was lost or left: 0 and 0
	@$(BIN)/vmtax image build
	@$(BIN)/python tools/torture.py

clean: ## remove the virtual environment and what tools cached here; never results or images
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
