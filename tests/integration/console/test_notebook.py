"""The notebook that the console gives away, run by a real kernel in an empty folder."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from shoal.console.operator.app import Sources, operator_app
from tests.worlds.console import write_data

HERE = "127.0.0.1:7450"


def test_the_notebook_has_the_same_figures_to_the_digit(tmp_path: Path) -> None:
    """Its page is byte by byte the one that is downloaded, and each estimate is printed as it is in
    the JSON. Planted: releases rounded on their way into it -> fails.
    """
    import nbformat  # here: each test process collects all tests, one runs it
    from nbclient import NotebookClient

    data, tasks = write_data(tmp_path, 4)
    places = Sources(data_dir=data, tasks_dir=tasks)
    with TestClient(operator_app(places, HERE), base_url=f"http://{HERE}") as client:
        book: Any = nbformat.reads(client.get("/download/visits.ipynb").text, as_version=4)  # type: ignore[no-untyped-call]
        page = client.get("/download/visits.html").text
        releases = json.loads(client.get("/download/visits.json").text)
    (tmp_path / "empty").mkdir()
    run: Any = NotebookClient(
        book,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path / "empty")}},
    )
    run.execute()
    outputs = [each for cell in book.cells for each in cell.get("outputs", ())]
    (shown,) = [each["data"]["text/html"] for each in outputs if "data" in each]
    framed = re.search(r'<iframe srcdoc="([^"]*)"', shown)
    assert framed is not None
    assert html.unescape(framed[1]) == page
    printed = "".join(each["text"] for each in outputs if each["output_type"] == "stream")
    for release in releases:
        for row in release["estimates"]:
            assert f"{row['value']!r}" in printed, (release["window"], row["label"])
    assert "withheld" in printed
    assert list((tmp_path / "empty").iterdir()) == []
