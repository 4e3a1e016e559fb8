"""The members for workers on other machines: a scheduler and two workers as processes, over TLS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.analyzer.batches.executor import Executor
from shoal.analyzer.batches.key_delivery import KeyDelivery
from shoal.analyzer.machines.engine import MachinesDelivery, MachinesExecutor
from tests.conformance.opening.suite import ExecutorSuite, KeyDeliverySuite
from tests.conformance.opening.together import OpeningSuite
from tests.worlds.machines import Machines, machines


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("machines")) as made:
        yield made


class TestMachinesExecutor(ExecutorSuite):
    @pytest.fixture
    def make(self, world: Machines) -> Executor:
        return MachinesExecutor(world.cluster())


class TestMachinesDelivery(KeyDeliverySuite):
    @pytest.fixture
    def make(self, world: Machines) -> tuple[Executor, KeyDelivery]:
        cluster = world.cluster()
        return MachinesExecutor(cluster), MachinesDelivery(cluster)


class TestOpeningOnMachines(OpeningSuite):
    @pytest.fixture
    def make(self, world: Machines) -> tuple[Executor, KeyDelivery]:
        cluster = world.cluster()
        return MachinesExecutor(cluster), MachinesDelivery(cluster)


class TestOpeningOnMachinesInParts(OpeningSuite):
    """Chunks of up to eight requests, whose results a worker joins. Planted: a part left out, its
    marks before those of earlier parts, or the last tally instead of the sum -> this fails.
    """

    @pytest.fixture
    def make(self, world: Machines) -> tuple[Executor, KeyDelivery]:
        cluster = world.cluster()
        return MachinesExecutor(cluster, 16), MachinesDelivery(cluster)
