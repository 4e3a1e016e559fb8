"""Generate the Python code of protos/*.proto: ``python tools/protos.py [OUT]`` (default: beside the
.proto files).

The generated files are committed; a test generates them anew and compares.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def generate(out: Path) -> list[Path]:
    """Write *_pb2.py and *_pb2.pyi for every .proto into ``out``; return the files.

    No stubs of services: common/rpc builds servers and channels from names of methods.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in"
        package = source / "shoal" / "protos"
        package.mkdir(parents=True)
        made = Path(folder) / "out"
        made.mkdir()
        names = sorted(path.name for path in (ROOT / "protos").glob("*.proto"))
        for name in names:
            shutil.copy(ROOT / "protos" / name, package / name)
        plugin = Path(sys.executable).parent / "protoc-gen-mypy"
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}"]
            + [f"--plugin=protoc-gen-mypy={plugin}", f"--python_out={made}", f"--mypy_out={made}"]
            + [f"shoal/protos/{name}" for name in names],
            check=True,
            capture_output=True,
        )
        out.mkdir(parents=True, exist_ok=True)
        return [
            Path(shutil.copy(path, out / path.name))
            for path in sorted((made / "shoal" / "protos").iterdir())
        ]


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "protos"):
        print(path)
