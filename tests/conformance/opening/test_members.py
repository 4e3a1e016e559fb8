"""Today's members of the seams of opening: processes of this machine, a local file, a key that
crosses in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.analyzer.batches.chunk_source import FileSource
from shoal.analyzer.batches.executor import Executor, ProcessExecutor
from shoal.analyzer.batches.key_delivery import InMemoryDelivery, KeyDelivery
from shoal.services.workers import WorkerPool
from tests.conformance.opening.suite import ChunkSourceSuite, ExecutorSuite, KeyDeliverySuite
from tests.conformance.opening.together import OpeningSuite


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """Workers that start in an empty folder, also those that come after a death."""
    folder = tmp_path_factory.mktemp("workers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TMPDIR", str(folder))
        made = WorkerPool(2)
        made.warm()
        yield made
        made.close()


class TestProcessExecutor(ExecutorSuite):
    @pytest.fixture
    def make(self, pool: WorkerPool) -> Executor:
        return ProcessExecutor(pool)


class TestFileSource(ChunkSourceSuite):
    def make(self, folder: Path, data: bytes, row_size: int) -> FileSource:
        path = folder / "batch.rows"
        path.write_bytes(data)
        return FileSource(path, row_size)

    def shrink(self, folder: Path, row_size: int) -> None:
        path = folder / "batch.rows"
        os.truncate(path, path.stat().st_size - row_size)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            FileSource(tmp_path / "none.rows", 5)


class TestInMemoryDelivery(KeyDeliverySuite):
    @pytest.fixture
    def make(self, pool: WorkerPool) -> tuple[Executor, KeyDelivery]:
        return ProcessExecutor(pool), InMemoryDelivery()


class TestOpeningHere(OpeningSuite):
    @pytest.fixture
    def make(self, pool: WorkerPool) -> tuple[Executor, KeyDelivery]:
        return ProcessExecutor(pool), InMemoryDelivery()
