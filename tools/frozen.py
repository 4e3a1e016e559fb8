"""Record the transcripts of a frozen version anew: ``PYTHONPATH=. python tools/frozen.py 0001``.

For answers that changed on purpose alone; which those are, and which never are, says
tests/vectors/frozen/README.md. Read the difference line by line before it is committed: whatever
else is in it is a promise that was broken. The archives of folders are never made anew; a new
version gets a folder of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

from tests.vectors.frozen_corpus import COMMANDS, FROZEN, again, kept, transcript, unpack
from tests.vectors.test_frozen_services import going_on


def main(version: str) -> None:
    """Freeze what this version's commands and services leave behind, as tests/vectors/frozen keeps
    it.
    """
    for name, (archive, now) in COMMANDS.items():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(unpack(archive, Path(folder), version) if archive else folder)
            _write(name, version, again(transcript(name, version), now))
            os.chdir(FROZEN)
    with tempfile.TemporaryDirectory() as folder:
        home, device = (unpack(name, Path(folder), version) for name in ("services", "agent"))
        _write("after", version, asyncio.run(going_on(home, device)))


def _write(name: str, version: str, text: str) -> None:
    (FROZEN / version / f"{name}.transcript").write_text(kept(transcript(name, version), text))
    print(f"{name}: {len(text):,} characters")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Record the transcripts of a frozen version anew: for answers that changed on "
        "purpose alone, see tests/vectors/frozen/README.md.",
        epilog="example: PYTHONPATH=. python tools/frozen.py 0001",
    )
    parser.add_argument(
        "version", choices=sorted(path.name for path in FROZEN.iterdir() if path.is_dir())
    )
    main(parser.parse_args().version)
