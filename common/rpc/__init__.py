"""The one place that builds a gRPC server and the one that builds a channel."""

import os

# gRPC's C core writes its own lines to stderr, with addresses in them: ours are enough. Set before
# grpc is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
