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
    """Write *_pb2.py, *_pb2.pyi, *_pb2_grpc.py, *_pb2_grpc.pyi for every .proto into ``out``;
    return the files.
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
        bin_dir = Path(sys.executable).parent
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}"]
            + [
                f"--plugin=protoc-gen-{tool}={bin_dir}/protoc-gen-{tool}"
                for tool in ("mypy", "mypy_grpc")
            ]
            + [f"--{tool}_out={made}" for tool in ("python", "grpc_python", "mypy", "mypy_grpc")]
            + [f"shoal/protos/{name}" for name in names],
            check=True,
            capture_output=True,
        )
        out.mkdir(parents=True, exist_ok=True)
        files = []
        for path in sorted((made / "shoal" / "protos").iterdir()):
            stem = path.name.split("_pb2")[0]
            if "_grpc" in path.name and "service " not in (package / f"{stem}.proto").read_text():
                continue  # a file without a service needs no stub
            files.append(Path(shutil.copy(path, out / path.name)))
        return files


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "protos"):
        print(path)
