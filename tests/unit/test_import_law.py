"""The import law and its neighbours, read from the syntax trees: who may import whom, what a device
must not load, what nobody may call.

The import law is the trust boundary: a shuffler that cannot import a mechanism cannot decode a
report, and roles that never import one another can be read, deployed and audited alone. Each law is
a function from one module to the lines that break it; the messages name the file and the law.
``PLANTED`` holds at least one offender per law, so every law can fail.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.cases import for_each
from tests.worlds.modules import Module, declared, distribution_of, imports_of, read

# Folder -> folders that its modules may import, besides its own.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "protos": frozenset(),
    "common": frozenset({"protos"}),
    "crypto": frozenset({"protos", "common"}),
    "mechanisms": frozenset({"protos", "common"}),
    "accounting": frozenset({"protos", "common", "mechanisms"}),
    "clients": frozenset({"protos", "common", "crypto", "mechanisms", "accounting"}),
    "shuffler": frozenset(
        {"protos", "common", "crypto"}
    ),  # neither mechanisms nor accounting: it must not understand a report
    "analyzer": frozenset({"protos", "common", "crypto", "mechanisms", "accounting"}),
    "checker": frozenset({"protos"}),  # it must not rest on what it checks
    "study": frozenset({"protos", "common", "crypto", "mechanisms", "accounting", "analyzer"}),
    "console": frozenset(
        {"protos", "common", "crypto", "mechanisms", "accounting", "clients", "analyzer"}
    ),
    "cli": frozenset(
        {
            "protos",
            "common",
            "crypto",
            "mechanisms",
            "accounting",
            "clients",
            "shuffler",
            "analyzer",
            "checker",
            "study",
            "console",
        }
    ),
}
DEVICE_PATH = frozenset({"protos", "common", "crypto", "mechanisms", "accounting", "clients"})
SERVICES_ONLY = {
    "common/services/machine.py": "shoal.services.machine",
    "common/services/settings.py": "shoal.services.settings",
    "common/rpc/admin.py": "shoal.rpc.admin",
}
# Third-party packages that a module of the device path may import inside a function, where a
# service or an extra calls it.
LAZILY = {
    "common/rpc/health.py": {"grpc_health"},
    "common/services/process.py": {"uvloop"},
    "clients/fleet/simulator.py": {"uvloop"},
    "common/pictures/templates.py": {"jinja2"},
    "common/mqtt/session.py": {"paho"},
    "crypto/signing.py": {"nacl"},
    "common/questions/network.py": {"torch"},
}
# in a base install, for commands; nothing on a device's path loads them
COMMAND_LINE = frozenset({"pydantic", "rich", "tomlkit", "typer"})
PURE = frozenset({"mechanisms", "accounting"})
IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "grpc",
        "http",
        "multiprocessing",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "threading",
        "urllib",
    }
)
NOT_IN_A_CORE = IMPURE_MODULES | {"os", "pathlib", "time"}
ARRAYS = "common/arrays.py"
# `import shoal` gives an analyst what shoal.study has, when a name of it is asked for.
FACADE = "common/__init__.py"
# A module that only rounds of vectors load, and that may touch numpy when it is imported.
ALWAYS_ARRAYS = frozenset({"crypto/secagg/pads.py"})
LOOKS_AT_CALLERS = frozenset({"peer", "peer_identities", "peer_identity_key", "getpeername"})
UNSAFE_MODULES = frozenset({"random", "pickle", "marshal", "shelve"})
# The opener; and the source of values that reads the databases of other programs.
KNOW_SQLITE = frozenset({"common/storage/sqlite.py", "clients/sources/sqlite_query.py"})
MOST_LINES_OF_A_FUNCTION = 69
MOST_LINES_OF_A_FILE = 500


def folder_of(imported: str) -> str | None:
    """The folder of an imported shoal module: shoal.crypto.x -> crypto, shoal.errors -> common;
    None for anything else.
    """
    parts = imported.split(".")
    if parts[0] != "shoal":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "common"


def folders(module: Module) -> Iterator[str]:
    """import law: protos, common <- crypto, mechanisms <- accounting <- clients | shuffler |
    analyzer <- study, console <- cli; checker stands apart
    """
    for one in imports_of(module):
        target = folder_of(one.name)
        if module.path == FACADE and one.lazy and one.name == "shoal.study":
            continue
        if (
            target is not None
            and target != module.folder
            and target not in MAY_IMPORT[module.folder]
        ):
            yield f"{one.line}: {module.folder} may not import {one.name}"
        if one.name.startswith("."):
            yield f"{one.line}: relative import: write it from shoal on"
        if one.top in {"tests", "tools", "benchmarks", *MAY_IMPORT}:
            yield (
                f"{one.line}: {one.name}: packages import one another as shoal.* and never tests "
                "or tools"
            )


def device_path(module: Module) -> Iterator[str]:
    """device law: a device needs the standard library, numpy, cryptography, grpc and protobuf, and
    nothing of the service extras
    """
    if module.folder not in DEVICE_PATH or module.path in SERVICES_ONLY:
        return
    for one in imports_of(module):
        for services_only in SERVICES_ONLY.values():
            if one.name == services_only or one.name.startswith(f"{services_only}."):
                yield f"{one.line}: {one.name} is for services only"
        if (
            one.top in sys.stdlib_module_names
            or one.top == "shoal"
            or distribution_of(one) in declared() - COMMAND_LINE
        ):
            continue
        if not (one.lazy and one.top in LAZILY.get(module.path, ())):
            yield f"{one.line}: {one.name} is not installed on a device"


def declared_imports(module: Module) -> Iterator[str]:
    """dependency law: whatever is imported stands in pyproject.toml"""
    for one in imports_of(module):
        if (
            one.top in sys.stdlib_module_names
            or one.top in {"shoal", "__future__"}
            or one.name.startswith(".")
        ):
            continue
        if distribution_of(one) not in declared(
            "server", "parquet", "oidc", "postgresql-objects", "dask", "tables", "network"
        ):
            yield f"{one.line}: {one.name} is in no dependency of pyproject.toml"


def pure(module: Module) -> Iterator[str]:
    """purity law: mechanisms, accounting and every core.py know no socket, no disk and no process;
    a core no clock either
    """
    forbidden = (
        IMPURE_MODULES
        if module.folder in PURE
        else NOT_IN_A_CORE
        if module.path.endswith("/core.py")
        else frozenset()
    )
    for one in imports_of(module):
        if one.top in forbidden:
            yield f"{one.line}: {one.name}"


def callers_unseen(module: Module) -> Iterator[str]:
    """address law: nobody asks who calls, but for a hash that tells connections apart; client
    certificates are looked at in common/rpc/server.py alone
    """
    hashed = {
        id(node.args[0])
        for node in module.nodes
        if module.path == "common/rpc/server.py"
        and isinstance(node, ast.Call)
        and ast.unparse(node) == "hash(context.peer())"
        and node.args
    }
    for node in module.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and id(node) not in hashed
        ):
            if node.func.attr in LOOKS_AT_CALLERS:
                yield f"{node.lineno}: .{node.func.attr}() is never called"
            if node.func.attr == "auth_context" and module.path != "common/rpc/server.py":
                yield f"{node.lineno}: .auth_context() outside of the server builder"


def no_unsafe_modules(module: Module) -> Iterator[str]:
    """randomness law: no random, no numpy.random, and nothing that unpickles"""
    for one in imports_of(module):
        if one.top in UNSAFE_MODULES or one.name.startswith("numpy.random"):
            yield f"{one.line}: {one.name}: draw from shoal.entropy; decode with shoal.codec"
    for node in module.nodes:
        match node:
            case ast.Attribute(attr="random", value=ast.Name(id="np" | "numpy")):
                yield f"{node.lineno}: numpy.random: draw from shoal.entropy"


def one_sqlite(module: Module) -> Iterator[str]:
    """SQLite law: every file of our own is opened, migrated and judged in one place"""
    if module.path not in KNOW_SQLITE:
        for one in imports_of(module):
            if one.top == "sqlite3":
                yield f"{one.line}: {one.name}: take it from shoal.storage.sqlite"


def light_inits(module: Module) -> Iterator[str]:
    """light law: importing a package loads no service library, so that a device starts small"""
    if module.path.endswith("/__init__.py"):
        for one in imports_of(module):
            if (
                not one.lazy
                and one.top not in sys.stdlib_module_names
                and one.top not in {"shoal", "numpy"}
            ):
                yield f"{one.line}: {one.name} in a package's __init__"


def prepared_keys(module: Module) -> Iterator[str]:
    """prepared law: keys that lie about before there is a report are a simulated fleet's; no
    device, no service and no fleet's neighbour imports shoal.crypto.prepared, and no other module
    of clients the fleet
    """
    if module.path.startswith("clients/fleet/") or module.path == "crypto/prepared.py":
        return
    for one in imports_of(module):
        if f"{one.name}.".startswith("shoal.crypto.prepared."):
            yield f"{one.line}: {one.name} is for clients/fleet alone"
        if module.folder == "clients" and f"{one.name}.".startswith("shoal.clients.fleet."):
            yield f"{one.line}: {one.name}: a device is no fleet"


def arrays(module: Module) -> Iterator[str]:
    """array law: numpy is imported once, lazily, in common/arrays.py, and ``from shoal.arrays
    import np`` stands at the top of a file; nothing that runs when a module is imported touches
    ``np``, or an idle device would keep numpy. tests, tools, benchmarks, and checker, which may
    not use common, import numpy at the top
    """
    in_package = module.folder in MAY_IMPORT.keys() - {"checker"}
    if module.path != ARRAYS:
        for one in imports_of(module):
            if one.top == "numpy" and (one.lazy or in_package):
                yield f"{one.line}: {one.name}: from shoal.arrays import np, at the top"
            if one.lazy and one.name.startswith("shoal.arrays."):
                yield f"{one.line}: {one.name}: at the top of the file"
    if in_package and module.path not in {ARRAYS, *ALWAYS_ARRAYS}:
        for node in _run_at_import(module.tree):
            if isinstance(node, ast.Name) and node.id in {"np", "NDArray"}:
                yield f"{node.lineno}: {node.id} when the module is imported"


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but the bodies of functions, and annotations, which are never evaluated."""
    yield node
    for name, value in ast.iter_fields(node):
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if name in {"annotation", "returns"} or (inside and name == "body"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _run_at_import(child)


def sizes(module: Module) -> Iterator[str]:
    """size law: a file has at most 500 lines, a function fewer than 70 (but for size_debts.txt,
    which gets shorter and never longer)
    """
    lines = module.source.count("\n")
    if lines > max(MOST_LINES_OF_A_FILE, debts().get(module.path, 0)):
        yield f"{lines}: the file has {lines} lines: split it by idea"
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            owed = debts().get(f"{module.path}::{node.name}", 0)
            if length > max(MOST_LINES_OF_A_FUNCTION, owed):
                yield f"{node.lineno}: {node.name} has {length} lines"


@cache
def debts() -> Mapping[str, int]:
    """What is still larger than the law: a file, or file::function, and its lines."""
    rows = Path(__file__).with_name("size_debts.txt").read_text().splitlines()
    return {name: int(lines) for name, lines in (row.split() for row in rows)}


Law = Callable[[Module], Iterator[str]]
PACKAGE_LAWS: tuple[Law, ...] = (
    folders,
    device_path,
    declared_imports,
    pure,
    callers_unseen,
    no_unsafe_modules,
    one_sqlite,
    light_inits,
    prepared_keys,
    arrays,
    sizes,
)


@for_each("folder", MAY_IMPORT)
def test_packages_keep_the_law(folder: str) -> None:
    assert read(folder), f"{folder}/ holds no module"
    keep(folder, PACKAGE_LAWS)


@for_each("folder", ["tests", "tools", "benchmarks"])
def test_everything_else_keeps_the_laws_of_any_code(folder: str) -> None:
    keep(folder, (sizes, arrays))


def keep(folder: str, laws: tuple[Law, ...]) -> None:
    """Module by module, so that each is parsed once. Fails with every law that is broken."""
    broken: dict[str, list[str]] = {}
    for module in read(folder):
        for law in laws:
            lines = [f"{module.path}:{line}" for line in law(module)]
            if lines:
                broken.setdefault(law.__doc__ or law.__name__, []).extend(lines)
    assert not broken, "\n".join("\n".join([law, *lines]) for law, lines in broken.items())


PLANTED: list[tuple[Law, str, str]] = [
    (folders, "shuffler/reports/ingress.py", "from shoal.mechanisms import create"),
    (folders, "shuffler/core.py", "import shoal.accounting.certificate"),
    (folders, "shuffler/core.py", "from shoal import mechanisms"),
    (folders, "analyzer/batches/ingest.py", "from shoal.shuffler.core import Window"),
    (folders, "clients/agent.py", "def send() -> None:\n    from shoal.analyzer import results"),
    (
        folders,
        "clients/agent.py",
        "from importlib import import_module\nimport_module('shoal.analyzer')",
    ),
    (folders, "common/task.py", "from shoal.crypto.hpke import seal"),
    (folders, "common/__init__.py", "import shoal.study"),  # allowed inside a function alone
    (folders, "common/__init__.py", "def f() -> None:\n    import shoal.analyzer"),
    (folders, "crypto/hpke.py", "from shoal.mechanisms import create"),
    (folders, "accounting/numerics/curve.py", "from shoal.cli.output import table"),
    (folders, "crypto/hpke.py", "from . import suites"),
    (folders, "crypto/hpke.py", "from tests.sizes import size"),
    (folders, "crypto/hpke.py", "import mechanisms"),
    (device_path, "clients/agent.py", "import typer"),
    (device_path, "clients/agent.py", "def show() -> None:\n    from rich.table import Table"),
    (
        device_path,
        "common/rpc/health.py",
        "from grpc_health.v1 import health",
    ),  # allowed inside a function alone
    (device_path, "common/log.py", "import structlog"),
    (
        device_path,
        "clients/settings/config.py",
        "from shoal.services.settings import load_settings",
    ),
    (device_path, "clients/settings/config.py", "from shoal.rpc import admin"),
    (declared_imports, "analyzer/page.py", "import requests"),
    (declared_imports, "cli/load/command.py", "import scipy.stats"),
    (pure, "mechanisms/categories/krr.py", "import sqlite3"),
    (pure, "accounting/numerics/curve.py", "import grpc"),
    (pure, "shuffler/core.py", "import time"),
    (pure, "analyzer/core.py", "from pathlib import Path"),
    (callers_unseen, "shuffler/reports/ingress.py", "def f(context):\n    return context.peer()"),
    (callers_unseen, "common/rpc/server.py", "def f(context):\n    return context.peer()"),
    (callers_unseen, "common/rpc/admin.py", "def f(context):\n    return hash(context.peer())"),
    (callers_unseen, "analyzer/ingress.py", "def f(context):\n    return context.auth_context()"),
    (no_unsafe_modules, "clients/retry.py", "import random"),
    (
        no_unsafe_modules,
        "mechanisms/categories/krr.py",
        "import numpy as np\nnp.random.default_rng()",
    ),
    (no_unsafe_modules, "mechanisms/categories/krr.py", "from numpy.random import default_rng"),
    (no_unsafe_modules, "shuffler/stores/store.py", "import pickle"),
    (one_sqlite, "shuffler/stores/sqlite/inbox.py", "import sqlite3"),
    (one_sqlite, "analyzer/store.py", "from sqlite3 import connect"),
    (light_inits, "clients/__init__.py", "import grpc"),
    (prepared_keys, "clients/core.py", "from shoal.crypto.prepared import encapsulate"),
    (prepared_keys, "clients/agent.py", "def f() -> None:\n    from shoal.crypto import prepared"),
    (prepared_keys, "crypto/envelope.py", "import shoal.crypto.prepared"),
    (
        prepared_keys,
        "cli/load/command.py",
        "from importlib import import_module\nimport_module('shoal.crypto.prepared')",
    ),
    (prepared_keys, "clients/service/runner.py", "from shoal.clients.fleet.pool import Pool"),
    (arrays, "mechanisms/categories/krr.py", "import numpy as np"),
    (arrays, "shuffler/core.py", "from numpy.typing import NDArray"),
    (arrays, "clients/core.py", "def f() -> None:\n    import numpy as np"),
    (arrays, "clients/core.py", "def f() -> None:\n    from shoal.arrays import np"),
    (arrays, "tests/sizes.py", "def f() -> None:\n    import numpy as np"),
    (arrays, "clients/core.py", "from shoal.arrays import np\nZERO = np.uint64(0)"),
    (arrays, "clients/core.py", "from shoal.arrays import np\ndef f(at=np.pi): ..."),
    (arrays, "clients/core.py", "from shoal.arrays import np\nclass A:\n    b = np.zeros(3)"),
    (arrays, "clients/core.py", "from shoal.arrays import NDArray, np\nInts = NDArray[np.int64]"),
    (sizes, "cli/load/command.py", "def f() -> None:\n" + "    pass\n" * 69),
    (sizes, "cli/load/command.py", "\n" * 501),
]


@for_each("law, path, source", PLANTED, ids=lambda part: part.__name__ if callable(part) else None)
def test_every_law_can_fail(law: Law, path: str, source: str) -> None:
    """One planted offender each: a law that lets its own offender pass is broken."""
    assert list(law(Module(path, source))), f"{law.__doc__}: not seen in {path}: {source[:60]!r}"


def test_innocents_pass() -> None:
    """The laws don't cry wolf: an ordinary module of each role."""
    ordinary = (
        "from __future__ import annotations\nimport math\nfrom shoal.arrays import NDArray, np\n"
        "from shoal.errors import Kind\n"
        "def f(at: NDArray[np.int64]) -> NDArray[np.int64]:\n    return np.sort(at)\n"
    )
    for folder in MAY_IMPORT.keys() - {"protos", "checker"}:  # these import nothing of common
        for law in PACKAGE_LAWS:
            assert not list(law(Module(f"{folder}/module.py", ordinary)))
    lazy = "def f() -> None:\n    from grpc_health.v1 import health\n"
    assert not list(device_path(Module("common/rpc/health.py", lazy)))
    assert not list(sizes(Module("cli/load/command.py", "def f() -> None:\n" + "    pass\n" * 68)))
