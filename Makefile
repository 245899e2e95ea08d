# make demo   sets up and runs the main job: speech to 800 bits a second and back
# make test   sets up and runs the tests
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
INSTALLED_ALL := $(VENV)/installed-all
DEMO := build/demo
SAMPLE := amiable

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The extras are installed when pyproject.toml or the constraints change, and not otherwise.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install -q -c constraints.txt -e '.[plot]'
	@touch $@

$(INSTALLED_ALL): $(INSTALLED)
	$(BIN)/pip install -q -c constraints.txt -e '.[all,dev]'
	@touch $@

.PHONY: demo
demo: $(INSTALLED)  ## encode and decode the bundled sample, report its bits, draw them
	@mkdir -p $(DEMO)
	cp src/dtm_codec/samples/$(SAMPLE).flac $(DEMO)/speech.flac
	$(BIN)/dtm-codec encode $(DEMO)/speech.flac --bitrate 800 --nominal --force
	$(BIN)/dtm-codec info $(DEMO)/speech.dtm
	$(BIN)/dtm-codec decode $(DEMO)/speech.dtm --force
	$(BIN)/dtm-codec show $(DEMO)/speech.flac --bitrate 800 --nominal -o $(DEMO)/speech.png --force
	@echo "listen to $(DEMO)/speech.flac and the decoded file beside it; look at $(DEMO)/speech.png"

.PHONY: test
test: $(INSTALLED_ALL)  ## all tests; those in a browser where Chromium and its driver are installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest  # networks of tests are too small to be shared out

.PHONY: test-web
test-web: $(INSTALLED_ALL)  ## the pages: servers, hostile input, a real browser
	$(BIN)/python -m pytest tests/web

.PHONY: page
page: $(INSTALLED)  ## the page that codes speech in the browser, as a folder for any web server: build/page
	$(BIN)/dtm-codec page -o build/page

.PHONY: lint
lint: $(INSTALLED_ALL)  ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

MODEL ?= small
RUNTIME ?= build/onnx
.PHONY: runtime
runtime: $(INSTALLED_ALL)  ## ONNX graphs of [MODEL=small] in three precisions under [RUNTIME=build/onnx], checked
	for precision in fp32 fp16 int8; do \
		$(BIN)/dtm-codec export $(MODEL) --onnx --precision $$precision -o $(RUNTIME)/$$precision || exit; done
	$(BIN)/python benchmarks/runtime.py --model $(MODEL) --graphs $(RUNTIME)

.PHONY: bench
bench: $(INSTALLED_ALL)  ## speed, memory and selectors of the 127 M model, on one thread
	$(BIN)/python benchmarks/codec.py
	$(BIN)/python benchmarks/selection.py --model random:vfr-50
	$(BIN)/python benchmarks/selection.py --model small

.PHONY: bench-train
bench-train: $(INSTALLED_ALL)  ## training throughput and where the time goes
	$(BIN)/python benchmarks/train.py

KILLS ?= 50
.PHONY: kill-tests
kill-tests: $(INSTALLED_ALL)  ## kill encoding, training, evaluation, corpus and listening test [KILLS=50] times each, and check
	$(BIN)/python benchmarks/kill_tests.py --kills $(KILLS)

.PHONY: train-smoke
train-smoke: $(INSTALLED_ALL)  ## a few steps of training on the bundled sample
	$(BIN)/python -m pytest tests/training/test_smoke.py

MODELS ?= runs
REPORT ?= reports/small
JOBS ?= $(shell nproc)
.PHONY: report-small
report-small: $(INSTALLED_ALL)  ## every table of the paper for the small models: DATA=test.jsonl PROBE=probe.jsonl [CALIBRATE=dev.jsonl] [CODES=train.jsonl]
	@test -n "$(DATA)" -a -n "$(PROBE)" || { echo "usage: make report-small DATA=test.jsonl PROBE=probe.jsonl"; exit 2; }
	$(BIN)/dtm-codec recipe all --models $(MODELS) $(if $(CALIBRATE),--calibrate $(CALIBRATE)) \
		$(if $(CODES),--codes-data $(CODES)) --data $(DATA) --probe $(PROBE) --jobs $(JOBS) -o $(REPORT)
