"""Ports that are free until a service has them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from shoal.cli.demo import ports
from shoal.errors import Kind, ShoalError


def test_no_connection_is_given_the_port_of_a_service() -> None:
    """Planted: the kernel asked for one, as for a connection -> in its range, fails."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < ports.free_port() < first for _ in range(20))


def test_a_port_that_somebody_has_is_passed_over() -> None:
    """Planted: not tried -> the port itself, fails."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken: int = other.getsockname()[1]
        with pytest.raises(ShoalError) as refused:
            ports.free_port(range(taken, taken + 1))
        assert refused.value.kind is Kind.UNAVAILABLE
        around = range(taken - 10, taken + 10)
        assert taken not in {ports.free_port(around) for _ in range(200)}


def test_where_all_are_for_connections_the_kernel_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_RANGE", tmp_path / "range")
    assert not ports.quiet_ports()
    assert ports.free_port() > 1024
    monkeypatch.setattr(ports, "_RANGE", tmp_path / "absent")
    assert ports.quiet_ports()[-1] == 32_767
