"""Long lists, a page at a time: newest first, with plain links to what is older and newer. A page
is named by the number of its newest entry, which stays what it is when more is added.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass

MOST = 100  # entries of a page


@dataclass(frozen=True, slots=True)
class Leaf:
    """The page of the list at ``path`` that begins with entry ``last`` of ``total`` and goes down;
    0: there are none. ``head``: a ledger's, kept in the links.
    """

    path: str
    last: int
    total: int
    head: str = ""

    @property
    def first(self) -> int:
        """The number of its oldest entry."""
        return max(1, self.last - MOST + 1)

    @property
    def newer(self) -> str | None:
        """Where newer entries are; None: there are none."""
        return self.to(min(self.total, self.last + MOST)) if self.last < self.total else None

    @property
    def newest(self) -> str | None:
        """The first page; None: it is this one or the next."""
        return self.to(None) if self.last + MOST < self.total else None

    @property
    def older(self) -> str | None:
        """Where older entries are; None: there are none."""
        return self.to(self.last - MOST) if self.last > MOST else None

    @property
    def oldest(self) -> str | None:
        """The last page; None: it is this one or the next."""
        return self.to(MOST) if self.last > 2 * MOST else None

    def to(self, last: int | None) -> str:
        """The address of the page that begins with entry ``last``; None: with the newest."""
        fields = ({} if last is None else {"to": last}) | ({"head": self.head} if self.head else {})
        return f"{self.path}?{urllib.parse.urlencode(fields)}" if fields else self.path


def number_of(text: str) -> int | None:
    """The number of an entry, from an address; None for anything that is none."""
    fits = text.isascii() and text.isdigit() and len(text) <= 15 and int(text) > 0
    return int(text) if fits else None
