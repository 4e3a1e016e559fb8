"""Packages that a base install does not have, and what to install for them: asked for before
minutes are spent.
"""

from __future__ import annotations

from importlib.util import find_spec

from shoal.errors import Kind, ShoalError

# Import names, by the extra that brings them; the extras of pyproject.toml, so far as a command
# imports their packages itself. Of two that bring a package the first is named.
PACKAGES: dict[str, tuple[str, ...]] = {
    "plot": ("jinja2",),
    "server": (
        "pydantic_settings",
        "prometheus_client",
        "starlette",
        "uvicorn",
        "jinja2",
        "grpc_health",
    ),
    "console": ("starlette", "uvicorn", "jinja2", "pydantic_settings"),
    "mqtt": ("paho",),
    "parquet": ("pyarrow",),
    "dask": ("distributed",),
    "tables": ("mbi", "jax", "optax"),
    "oidc": ("authlib", "joserfc"),
    "network": ("torch",),
}


def need(extra: str) -> None:
    """Return if the packages of an extra are installed. Raises CONFIG that says what to install."""
    if any(find_spec(name) is None for name in PACKAGES[extra]):
        raise missing(extra)


def missing(extra: str) -> ShoalError:
    """The one line for a command that wants an extra."""
    return ShoalError(
        Kind.CONFIG,
        f"this wants packages that are not installed: Shoal's extra [{extra}]: pip install "
        f"'shoal[{extra}]'",
    )


def extra_of(error: ModuleNotFoundError) -> str | None:
    """The extra that would bring the module that was not found; None if none does: then it is a bug
    of ours.
    """
    top = (error.name or "").partition(".")[0]
    return next((extra for extra, names in PACKAGES.items() if top in names), None)
