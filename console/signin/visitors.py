"""Who is at the console: a name, a role, and how that is known."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, MutableMapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from starlette.requests import HTTPConnection

from shoal.errors import Kind, ShoalError

_LONGEST = 120  # characters of a name on a page and in the audit
# in a request's scope, where no header can put anything
_KEY = "shoal.visitor"
CERTIFICATE = "shoal.certificate"  # DER, as TLS verified it; None for none


class Role(Enum):
    """What somebody may do. A viewer sees everything but the audit; an operator acts, too."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Visitor:
    """``name``: to show; ``who``: what identifies them, as the audit has it. ``way``: "loopback",
    "certificate" or "oidc". ``session``: to end it; empty where there is none.
    """

    name: str
    who: str
    role: Role
    way: str
    session: str = ""

    @property
    def acts(self) -> bool:
        """Whether they may do what changes something, and read the audit."""
        return self.role is Role.OPERATOR


# Everybody who reaches this machine's loopback, where nobody signs in.
HERE = Visitor("this machine", "loopback", Role.OPERATOR, "loopback")


@dataclass(frozen=True, slots=True)
class Roles:
    """Names by role, as the configuration has them: compared whole and as they are."""

    operators: frozenset[str]
    viewers: frozenset[str]

    def of(self, names: Collection[str]) -> Role | None:
        """The most that any of these names may; None for strangers."""
        if self.operators.intersection(names):
            return Role.OPERATOR
        return Role.VIEWER if self.viewers.intersection(names) else None


def set_visitor(scope: MutableMapping[str, Any], visitor: Visitor) -> None:
    """For the handlers of this request."""
    scope[_KEY] = visitor


def visitor_of(request: HTTPConnection) -> Visitor | None:
    """Who asks; None before they are known."""
    found = request.scope.get(_KEY)
    return found if isinstance(found, Visitor) else None


def operator_of(request: HTTPConnection) -> Visitor:
    """Who asks, if they may act. Raises FORBIDDEN."""
    visitor = visitor_of(request)
    if visitor is None or not visitor.acts:
        raise ShoalError(Kind.FORBIDDEN, "only an operator may do that: ask one")
    return visitor


def plain(text: str) -> str:
    """A name that somebody else chose, fit to be shown beside others: no control characters and
    none that turn the direction of writing, and not longer than a line.
    """
    kept = "".join(each for each in text if unicodedata.category(each)[0] != "C").strip()
    return kept if len(kept) <= _LONGEST else f"{kept[: _LONGEST - 1]}…"
