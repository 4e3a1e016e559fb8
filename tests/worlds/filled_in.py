"""A planned task file, with what a person fills in."""

from __future__ import annotations

from pathlib import Path

from shoal.crypto.signing import SigningKey
from shoal.crypto.tlscerts import make_authority


def filled(path: Path) -> Path:
    """The same file, filled in."""
    text = path.read_text(encoding="utf-8")
    key = SigningKey.generate().public.hex()
    for blank, told in (
        ('"fill-in-a-name"', '"words"'),
        ('"fill in"', '"Tests."'),
        ('= ""  ', f'= "{key}"  '),
        ('= ""\n', f'= "{key}"\n'),
        ("shuffler.example.org", "shuffler.example"),
    ):
        text = text.replace(blank, told)
    path.write_text(text, encoding="utf-8")
    (path.parent / "ca.pem").write_bytes(make_authority("tests").cert_pem)
    return path
