"""The file with credentials of an object store: what it may say, and who may read it."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.config import Batches
from shoal.shuffler.stores.objects.options import open_bucket


def written(folder: Path, text: str, mode: int = 0o600) -> Batches:
    path = folder / "objects.toml"
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_text(text)
    return Batches(url="s3://some", credentials_file=path)


@pytest.mark.parametrize(
    "text",
    [
        "no toml",
        "region = 3",
        'endpoint = "http://store.example:9000"',
        'allow_http = "true"',
        'aws_conditional_put = "disabled"',
        'no_such_name = "x"',
    ],
)
def test_what_would_send_in_the_clear_or_write_over_is_refused(tmp_path: Path, text: str) -> None:
    """Planted: an endpoint beyond loopback not looked at -> fails."""
    with pytest.raises(ShoalError) as refused:
        open_bucket(written(tmp_path, text), b"k", "shoal")
    assert refused.value.kind is Kind.CONFIG


def test_others_may_not_read_it_and_loopback_needs_no_tls(tmp_path: Path) -> None:
    text = (
        'endpoint = "http://127.0.0.1:9000"\naccess_key_id = "a"\nsecret_access_key = "hidden-one"'
    )
    bucket = open_bucket(written(tmp_path, text), b"k", "shoal")
    assert "hidden-one" not in repr(bucket) + bucket.place
    with pytest.raises(ShoalError) as refused:
        open_bucket(written(tmp_path, text, 0o644), b"k", "shoal")
    assert refused.value.kind is Kind.KEY_FILE


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.endswith("objects.bucket"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ShoalError, match="postgresql-objects") as refused:
        open_bucket(Batches(url="s3://some"), b"k", "shoal")
    assert refused.value.kind is Kind.CONFIG
