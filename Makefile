# SPDX-License-Identifier: GPL-3.0-or-later
# Every target sets up what it needs by itself. See make help.

VERSION ?= 0.1.0
CUTS ?= 500
SEED ?= 1
FILESYSTEM ?= both
MACHINES ?= 1
SEQUENCE ?= 1
SECONDS ?= 60
TARGETS ?=
MODES ?= root helper start
WORKERS ?= $(shell nproc)
JOBS ?=
CALLS ?=
RESUME ?=
UPGRADES ?= 200
MODE ?= root
EVERY ?= 20

export PATH := $(CURDIR)/.build/venv/bin:$(PATH)
export PYTHONPYCACHEPREFIX := $(CURDIR)/.build/cache/pycache
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/.build/collections
export ANSIBLE_HOME := $(CURDIR)/.build/home/.ansible
export ANSIBLE_NOCOWS := 1

SUITES := bullseye bookworm trixie
host bench molecule soak powercut: SUITES := bookworm

PYTHON := .build/venv/bin/python
PYTEST := $(PYTHON) -m pytest
# what needs no host runs on every core; what mostly waits for processes that it started, on one more
PARALLEL := -n auto --maxprocesses 8
WAITING = -n $$(n=$$(nproc); [ $$n -lt 8 ] && echo $$((n + 1)) || echo 8)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-hosts setup-collection lint fix core unit host test e2e demo bench agent clean clean-hosts \
	molecule package sanity docs mutants safeties fuzz matrix faults soak broken powercut

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup-hosts ## three real hosts: install, upgrade in waves, a bad release that goes back (root; KEEP=1 keeps them)
	@$(PYTHON) tests/demo/demo.py

test: lint unit host ## everything that must pass before a change lands

setup: ## install what lint and unit tests need (into .build, and missing Debian packages)
	@tools/setup

setup-hosts: ## as setup, and what real test hosts need (root)
	@tools/setup --hosts $(SUITES)

setup-collection:
	@tools/setup --collection

lint: setup ## ruff, mypy, shellcheck, yamllint, ansible-lint, changelog
	@tools/lint

fix: setup ## let ruff format and repair what it can
	@ruff format .
	@ruff check --fix .

core: setup ## the pure engine's tests, with full branch coverage
	@$(PYTEST) -q $(PARALLEL) --dist worksteal tests/core --cov --cov-report=term

unit: core ## tests of the engine, of the agent as a process, and of the collection's plugins
	@$(PYTEST) -q $(WAITING) --dist loadfile tests/agent
	@$(PYTEST) -q $(WAITING) --dist loadfile tests/forger
	@$(PYTEST) -q $(WAITING) --dist loadfile tests/unit

host: setup-hosts ## real hosts of one suite (bookworm), end to end, in all modes, three at a time (root)
	@$(PYTEST) -q -n 3 --dist loadfile -m host tests/e2e -k bookworm --durations=15

e2e: setup-hosts ## real hosts of all three suites, end to end, in all three modes; MODES="helper" for some (root, long)
	@SLOTWARD_MODES="$(MODES)" $(PYTEST) -m "host or hosts" tests/hosts tests/e2e

broken: setup-hosts ## broken releases and wrong clocks on all three suites, into build/broken.json; MODES="root" for one mode (root, long)
	@SLOTWARD_MODES="$(MODES)" $(PYTEST) -m "host or hosts" tests/e2e/test_broken_releases.py tests/e2e/test_broken_products.py tests/e2e/test_clocks_hosts.py

bench: setup-hosts ## speed and memory, as ratios, into build/bench.json (root)
	@$(PYTHON) tests/bench/bench.py

soak: setup-hosts ## UPGRADES=200 good and broken ones in a row on one host, MODE=root|helper|start, a boot every EVERY=20; build/soak.json (root, half an hour)
	@$(PYTHON) tests/soak/run.py --upgrades $(UPGRADES) --mode $(MODE) --every $(EVERY) --suite $(firstword $(SUITES))

mutants: ## change slotcore in small ways, and see a test fail for each; MODULES="semver canonical" for some of them
	@tools/setup --mutants
	@nice -n 10 .build/venv-mutants/bin/python tests/mutants/run.py $(MODULES)

safeties: setup ## take every safety out of the source, one at a time, and see a suite fail for each; NAMES="fsync lock" for some, WORKERS=4, RESUME=1
	@nice -n 10 $(PYTHON) tests/mutants/safeties.py --workers "$(WORKERS)" $(if $(RESUME),--resume) $(NAMES)

fuzz: ## fuzz each parser for SECONDS (default 60), results in build/fuzz.json; TARGETS="toml semver" for some
	@tools/setup --fuzz
	@$(PYTHON) tests/fuzz/run.py $(SECONDS) $(TARGETS)

matrix: setup-hosts ## the vectors under both names, on each suite's and every other Python and cryptography, into build/matrix.json (root)
	@$(PYTHON) tests/vectors/matrix.py

faults: setup ## each file-system call of the agent and the guard fails once in each way, into build/faults.json (root, hours); WORKERS=4 JOBS="swap" CALLS=changing RESUME=1
	@$(PYTHON) tests/faults/syscalls.py --workers "$(WORKERS)" --jobs "$(JOBS)" --calls "$(CALLS)" $(if $(RESUME),--resume)

powercut: ## a virtual machine whose power is cut CUTS times, judged at each boot, into build/powercut.json; SEED, FILESYSTEM=ext4|xfs|both, MACHINES=2, RESUME=1 (root, hours)
	@tools/setup --powercut --hosts $(SUITES)
	@nice -n 10 $(PYTHON) tests/powercut/cuts.py --cuts $(CUTS) --seed $(SEED) --filesystem $(FILESYSTEM) --machines $(MACHINES) $(if $(RESUME),--resume)

molecule: ## the role and a rollback by molecule; SUITES="bullseye bookworm trixie" for all (root)
	@tools/setup --collection --hosts $(SUITES)
	@MOLECULE_SUITES="$(SUITES)" tools/molecule

package: setup ## build the collection's archive into build/ and look into it
	@tools/package

sanity: setup ## ansible-test sanity with every Python that is found
	@tools/sanity

docs: setup-collection ## antsibull-docs' checks of the modules', the plugins' and the role's documentation
	@tools/docs

agent: setup ## build the agent: make agent VERSION=1.1.0 SEQUENCE=2
	@test "$(origin VERSION)" = "$(origin SEQUENCE)" || { echo "make agent: give VERSION and SEQUENCE together, as in make agent VERSION=1.1.0 SEQUENCE=2" >&2; exit 1; }
	@$(PYTHON) agent/build.py --version $(VERSION) --sequence $(SEQUENCE)

clean: ## remove everything that make made in this checkout
	@rm -rf .build build dist .hypothesis .ansible .ruff_cache .mypy_cache .pytest_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

clean-hosts: ## remove what killed runs left of test hosts, and the cached base trees (root)
	@tests/hosts/hostctl clean --cache
