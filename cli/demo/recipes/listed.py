"""``shoal demo --recipe list``: the deployments that run."""

from __future__ import annotations

import json
from pathlib import Path

from rich.table import Table

from shoal.cli.demo.folders import write_file
from shoal.cli.demo.recipes.deployments import DEPLOYMENTS
from shoal.cli.output import STDOUT, emit_json, say_table


def show_list(json_path: Path | None) -> None:
    """A table, and as JSON where that is asked for. Raises CONFIG for a file that can't be
    written.
    """
    listed = {
        "recipes": [
            {
                "name": each.name,
                "title": each.recipe.title,
                "claimed_epsilon": each.recipe.epsilon,
                "unit": each.unit,
                "devices": each.devices,
                "windows": each.windows,
            }
            for each in DEPLOYMENTS
        ]
    }
    if json_path == STDOUT:
        emit_json(listed)
        return
    if json_path is not None:
        write_file(json_path, (json.dumps(listed, indent=2) + "\n").encode())
    table = Table("recipe", "deployment", "claimed epsilon", "devices", "windows")
    for each in DEPLOYMENTS:
        recipe = each.recipe
        claimed = f"{recipe.epsilon:g} of {each.unit}"
        table.add_row(each.name, recipe.title, claimed, f"{each.devices:,}", f"{each.windows}")
    say_table(table)
