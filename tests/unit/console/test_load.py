"""Many windows and many viewers: pages stay small, and what is worked out is worked out once."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet
import pytest
from starlette.testclient import TestClient

from shoal.analyzer.results.files.exports import COLUMNS
from shoal.console.known import Watched
from shoal.console.operator.app import Sources, operator_app
from shoal.console.operator.desk import Desk
from shoal.console.operator.holdings import Holdings, from_store
from shoal.console.operator.sources import Unchanged, in_folder
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.worlds.console import write_data

HERE = "127.0.0.1:7450"
WINDOWS = 1_203


def many(folder: Path, windows: int = WINDOWS) -> Path:
    """A file of so many windows of one question, made of one."""
    data, _ = write_data(folder / "made", 1)
    whole = from_store(data, None).question("visits").latest
    rows = [
        {**whole, "window": window, "manifest_hash": f"{window:064x}"} for window in range(windows)
    ]
    path = folder / "many.json"
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    places = Sources(releases=many(tmp_path_factory.mktemp("many")))
    with TestClient(operator_app(places, HERE), base_url=f"http://{HERE}") as client:
        yield client


def listed(text: str) -> list[int]:
    table = text.partition('id="windows"')[2]
    return [int(each) for each in re.findall(r'<th scope="row"><a href="[^"]*/(\d+)"', table)]


def test_a_question_of_many_windows_is_a_page_and_leads_to_all_of_them(client: TestClient) -> None:
    """Planted: all windows in one table -> too large. Planted: the next page begun one too late ->
    a window is missing, and this fails.
    """
    page = client.get("/releases/visits").text
    assert len(page) < 400_000
    assert "The last 200 of 1,203 windows" in page
    found = listed(page)
    while more := re.search(r'href="([^"]*\?before=\d+)#windows">those before', page):
        page = client.get(more[1]).text
        found += listed(page)
    assert found == list(reversed(range(WINDOWS)))


@for_each("window", [0, 1, 49, 600, 1_103, 1_152, 1_202])
def test_a_window_stands_in_its_list(client: TestClient, window: int) -> None:
    """Planted: the latest listed whatever is shown -> fails."""
    shown = listed(client.get(f"/releases/visits/{window}").text)
    assert window in shown
    assert len(shown) <= 100


@for_each("before", ["0", "x", "-1", "1", "99999999999"])
def test_a_strange_place_in_the_list_is_one_all_the_same(client: TestClient, before: str) -> None:
    """Planted: an empty list -> its first is asked for, and the page fails."""
    assert listed(client.get("/releases/visits", params={"before": before}).text)


def test_a_file_that_no_browser_shows_is_refused_in_place(client: TestClient) -> None:
    """Planted: made all the same -> fails."""
    for kind in ("html", "ipynb"):
        answer = client.get(f"/download/visits.{kind}")
        assert answer.status_code == 400
        assert "too many" in answer.text
        assert client.get(f"/download/visits/7.{kind}").status_code == 200
    assert client.get("/download/visits.csv").text.count("\n") > WINDOWS


def test_parquet_has_the_columns_and_the_figures(client: TestClient) -> None:
    """Planted: CSV's bytes under the name -> no Parquet."""
    answer = client.get("/download/visits/7.parquet")
    table = pyarrow.parquet.read_table(io.BytesIO(answer.content))
    (release,) = json.loads(client.get("/download/visits/7.json").text)
    assert tuple(table.column_names) == COLUMNS
    values = [row["value"] for row in table.to_pylist()]
    assert values[: len(release["estimates"])] == [row["value"] for row in release["estimates"]]


def test_files_that_did_not_change_are_not_read_again(tmp_path: Path) -> None:
    """Planted: a file that changed just now trusted -> its next change is not seen. Planted: the
    folder's list not looked at -> a new file is not seen.
    """
    reads, now = [0], [2_000_000_000.0]

    def read() -> int:
        reads[0] += 1
        return reads[0]

    def touch(name: str, at: float) -> None:
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (at, at))
        os.utime(tmp_path, (at, at))

    source = Unchanged(read, lambda: in_folder(tmp_path, ".json"), lambda: now[0])
    touch("a.json", now[0])
    assert [source(), source()] == [1, 2]  # it may change again under the same time
    now[0] += 10
    assert [source(), source(), source()] == [3, 3, 3]
    touch("b.json", now[0] - 5)
    assert [source(), source()] == [4, 4]
    touch("c.txt", now[0] - 5)
    (tmp_path / "b.json").unlink()
    os.utime(tmp_path, (now[0] - 5, now[0] - 5))
    assert [source(), source()] == [5, 5]
    now[0] += 301
    assert source() == 6


def test_what_many_ask_for_is_worked_out_once() -> None:
    """Planted: no waiting for who works it out -> several do. Planted: kept after a change, or a
    failure kept -> fails.
    """
    held = [Holdings((), (), {}, {})]
    desk = Desk(Watched(lambda: held[0], 0.0), {}, ())
    made, together = [0], threading.Barrier(8)

    def make(_: Holdings) -> int:
        made[0] += 1
        return made[0]

    def ask() -> int:
        together.wait()
        return desk.once(("key",), make)

    with ThreadPoolExecutor(8) as threads:
        answers = {each.result() for each in [threads.submit(ask) for _ in range(8)]}
    assert answers == {1}
    assert desk.once(("other",), make) == 2
    held[0] = Holdings((), (), {}, {}, ("changed",))
    assert desk.once(("key",), make) == 3

    def fail(_: Holdings) -> int:
        raise ShoalError(Kind.INVALID, "no")

    with pytest.raises(ShoalError):
        desk.once(("wrong",), fail)
    assert desk.once(("wrong",), make) == 4


def test_the_first_page_has_what_the_start_read() -> None:
    """Planted: read anew for the first look -> "no answer yet" where reading takes seconds."""
    never = threading.Event()
    watched = Watched(lambda: 2 if never.wait() else 0, 3.0, lambda: 0.0, 0.01, first=1)
    assert (watched.look().value, watched.look().trouble) == (1, None)
