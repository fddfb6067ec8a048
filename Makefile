# Every target does its own set-up; see tools/setup. `make demo` and `make test` are all a newcomer needs.
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help demo test check conformance bench clean

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t14

demo: ## a whole cluster in the lab, before your eyes; what it makes is in ./demo
	@tools/setup demo
	@$(BIN)/moorage demo --dir demo

test: ## unit, platform and crash tests
	@tools/setup test
	@$(BIN)/python -m pytest -n $$(( $$(nproc) + 1 )) --dist worksteal -m "not long"

check: ## formatting, lint, types, layers
	@tools/setup run
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports --no-logo

conformance: ## what we generate, judged by the real programs that will read it
	@tools/setup conformance
	@$(BIN)/python -m pytest tests/conformance
	@$(BIN)/python -m pytest -n 2 -m long --ignore=tests/kube --ignore=tests/machines
	@$(BIN)/python -m pytest -n 2 tests/kube tests/machines --kube=real
	@$(BIN)/python -m pytest -n 2 tests/kube tests/machines --kube=lab

bench: ## what our work costs beside the least that it could, both measured in the same run
	@tools/setup run
	@$(BIN)/python tests/bench/run.py

clean: ## remove everything the other targets made
	rm -rf .venv demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
