"""The marginals of a release in its JSON shape: all that is needed, and checked, since a file may
come from anywhere.
"""

from __future__ import annotations

import math
from typing import Any

from shoal.analyzer.tables.marginals import NoisyMarginal, ReleasedTables, TableAttribute, wrong
from shoal.arrays import np


def tables_of(release: dict[str, Any]) -> ReleasedTables:
    """``release``: as ``release_json.to_json`` writes it. Raises INVALID for one that was withheld,
    that is not of a record, or whose estimates are not those of its marginals.
    """
    if release["withheld"]:
        raise wrong("this release was withheld: there is nothing to make tables of")
    record = release.get("record")
    if record is None:
        raise wrong(
            "this release is not of several answers together: tables are made of tasks whose "
            'domain is of kind "record"'
        )
    attributes = tuple(
        TableAttribute(one["name"], tuple(one["labels"])) for one in record["attributes"]
    )
    sizes = {one.name: len(one.labels) for one in attributes}
    rows, start, marginals = release["estimates"], 0, []
    for names in record["marginals"]:
        if not all(name in sizes for name in names):
            raise wrong("a marginal of this release names an attribute that it does not have")
        shape = tuple(sizes[name] for name in names)
        part = rows[start : start + math.prod(shape)]
        start += math.prod(shape)
        if len(part) != math.prod(shape):
            break
        values, errors = (
            np.array([row[key] for row in part], dtype=np.float64).reshape(shape)
            for key in ("value", "stderr")
        )
        marginals.append(NoisyMarginal(tuple(names), values, errors))
    if start != len(rows):
        raise wrong(
            f"this release has {len(rows):,} estimates, and its marginals have {start:,} cells: "
            "write it anew by shoal results export --format json"
        )
    return ReleasedTables(attributes, tuple(marginals), release["n"])
