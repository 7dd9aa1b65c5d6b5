# `make demo` and `make test` set up all they need (as root, on Debian 12); a second run reuses it.
.PHONY: demo demo-topics docs drills test test-fast test-gathered test-lab test-servers test-spark lint lint-rest lint-types mutants explore images sbom setup

PYTHON = .venv/bin/python

# Without compiled modules each of the many processes of a test or a demo would compile them again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(PYTHON) -m pytest -p tests.no_skips --durations=10
# Beside the lab, at a lower priority. What is said comes in one piece, when it has ended.
BESIDE = @status=0; said=$$(nice -n 10 $(PYTEST) $(1) 2>&1) || status=$$?; echo "$$said"; exit $$status

# Move a loaded Kafka between two ensembles in the embedded lab; the outcome is in demo/result.json.
demo: setup
	@$(PYTHON) -m zkmigrate.lab.provision zookeeper-3.5.8 kafka-2.8.2
	@$(PYTHON) -m zkmigrate.lab.demo

# Switch clients at work from one Kafka cluster to another one, and back; the outcome is in demo-topics/result.json.
# make demo-topics PAIR=3.9.1:4.3.1
PAIR = 2.8.2:4.3.1
demo-topics: setup
	@$(PYTHON) -m zkmigrate.lab.topic_demo --pair $(PAIR)

# Everything dangerous, many times, on real lab hosts; see docs/how-to/drills.md. One drill: make drills DRILLS=cuts
drills: setup
	@$(PYTHON) -m zkmigrate.lab.provision
	@$(PYTEST) --verbose --capture=no -m drill --junit-xml=drills/result.xml $(or $(wildcard tests/drills/test_$(DRILLS).py),tests/drills $(DRILLS))

# The checks, then every test: those on lab hosts, and beside them the fast ones, those with servers of their own and
# those in a real Spark. A skipped test fails the run. The lab waits half of its time: the others use that, at a lower
# priority.
test: setup
	@make --no-print-directory --jobs=2 --keep-going --output-sync=target lint-types lint-rest test-gathered
	@$(PYTHON) -m zkmigrate.lab.provision
	@$(PYTHON) -m zkmigrate.lab sweep
	@status=0; \
	make --no-print-directory --jobs=4 --keep-going test-lab test-servers test-fast test-spark || status=$$?; \
	$(PYTHON) -m zkmigrate.lab sweep || status=$$?; \
	exit $$status

# All tests are gathered once, beside the checks. That leaves them compiled: in a fresh clone each worker would
# compile them again.
test-gathered:
	@said=$$($(PYTHON) -m pytest --collect-only --quiet --quiet tests 2>&1) || { echo "$$said"; exit 1; }

test-lab:
	@$(PYTEST) --verbose tests/lab

# More workers than cores: many of these tests wait for servers, or for a process of their own. One worker has those
# with servers: two of them begin so many at once that others miss their deadlines. tests/servers/conftest.py sorts them.
test-servers:
	$(call BESIDE,--numprocesses=1 --dist=loadscope tests/servers)

test-fast:
	$(call BESIDE,--numprocesses=2 --dist=worksteal tests/unit tests/world)

# One Spark for all of them, beside the others: alone it does not keep two cores at work.
test-spark:
	$(call BESIDE,tests/spark)

# Change the safety modules in a copy of the tree and see their tests fail; see docs/how-to/mutants.md. A survivor that
# is not listed is an error. make mutants MUTANTS='lock next_wave'
mutants: setup
	@status=0; \
	nice -n 15 $(PYTHON) -m tests.mutants.python $(MUTANTS) || status=$$?; \
	$(PYTHON) -m tests.mutants.shell || status=$$?; \
	exit $$status

# All seeds and places of the tests that ordinarily try some, then new examples for the tests of hypothesis; see
# docs/how-to/mutants.md. make explore EXPLORE='--minutes 60'
EXHAUSTIVE = $$(grep -rlE '\b(seeds|every)\(' --include='test_*.py' tests/unit tests/world)
explore: setup
	@HYPOTHESIS_PROFILE=search nice -n 15 $(PYTEST) --numprocesses=2 --dist=worksteal $(EXHAUSTIVE)
	@nice -n 15 $(PYTHON) -m tests.explore $(EXPLORE)

# The pictures of the README, from a model run; needs chromium.
images: setup
	@$(PYTHON) -m tests.images

# What the locks hold, as CycloneDX: build/sbom-tool.json and build/sbom-spark.json.
sbom:
	@setup/sbom.sh

# The documents as a site that can be searched; it fetches nothing. Read it with
#   python3 -m http.server --directory build/site
docs: setup
	@.venv/bin/mkdocs build

lint: setup
	@make --no-print-directory --jobs=2 --keep-going --output-sync=target lint-types lint-rest

lint-types:
	.venv/bin/mypy

lint-rest:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/mkdocs build
	shellcheck $$(grep -rlI '^#!/bin/sh' --exclude='*.py' .ci setup zkmigrate)

setup:
	@setup/install.sh "make $(MAKECMDGOALS)"
