"""Settings for every test: property tests draw the same examples in every run, and as many as the size of the run asks for."""

from __future__ import annotations

import os

from hypothesis import settings

from tests.sizes import size

# gRPC's core writes to stderr by itself; set before the first test module imports it, as the command line does.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# derandomize: a failure is a failure for everybody; no deadline: a busy machine is no defect.
settings.register_profile("shoal", derandomize=True, database=None, deadline=None, max_examples=size(60, 2_000), print_blob=True)
settings.load_profile("shoal")
