"""The templates of pages and pictures: files beside the code that fills them in."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Callable
from typing import Any

# What a template calls a filter, and what it makes of a value.
TemplateFilters = tuple[tuple[str, Callable[[Any], str]], ...]


def render(package: str, name: str, filters: TemplateFilters = (), **values: Any) -> str:
    """The text that the template ``name`` of ``package`` makes of ``values``.

    All text is escaped; a name in it that has no value is an error. Wants jinja2 (extras "plot" and
    "server"), and raises ModuleNotFoundError without it.
    """
    text: str = _template(package, name, filters).render(values)
    return text


@functools.cache
def _template(package: str, name: str, filters: TemplateFilters) -> Any:
    # Here: only who draws wants the package.
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def load(name: str) -> str:
        return importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name)
