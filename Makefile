# `make chat` and `make test` do all the set-up themselves. What they print while doing it goes to stderr.
# Words for the program: make chat ARGS='"What is MLX?" --temp 0 --json'
.SILENT:
.PHONY: chat test test-slow lint clean help setup setup-dev test-models

SHELL := /bin/sh
BIN := .venv/bin
# Models for the tests; keep this folder between runs and nothing is fetched twice.
TEST_HOME := $(or $(MLXCHAT_HOME),$(CURDIR)/.cache/home)

help:
	echo "make chat       set up, fetch the small demo model (93 MB), open the chat; ARGS='...' are the program's words"
	echo "make test       set up, fetch the test models, check style and types, run the tests"
	echo "make test-slow  the tests that take long"
	echo "make lint       style and types only"
	echo "make clean      remove what make made here (not the models)"

chat: setup
	$(BIN)/mlxchat models pull smollm2 --yes 1>&2
	exec $(BIN)/mlxchat $(value ARGS)

test: lint test-models
	MLXCHAT_HOME="$(TEST_HOME)" .ci/tests.sh

test-slow: test-models
	MLXCHAT_HOME="$(TEST_HOME)" .ci/tests.sh slow

lint: setup-dev
	.ci/lint.sh

setup:
	.ci/setup.sh run

setup-dev:
	.ci/setup.sh dev

test-models: setup-dev
	MLXCHAT_HOME="$(TEST_HOME)" $(BIN)/mlxchat models pull smollm2 gemma3-270m --yes 1>&2

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache/import
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
