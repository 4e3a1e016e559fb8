"""A mechanism whose reports are those of another one, its *response*, and whose estimate is its
own.

The mean of a number by k-ary randomized response, or by any table, differs from the plain counts at
the analyzer alone: the draw, the bytes, what a valid report is, the counts and the law are the
response's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import Response, Tally
from shoal.privacy import LocalPrivacy


class SharedResponse:
    """All of a mechanism that its ``response`` does. Immutable dataclasses inherit it, and have a
    ``response``, a field or a property.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        # Not at run time: a dataclass would take an inherited property for the default of a field
        # of that name.
        @property
        def response(self) -> Response: ...

    @property
    def report_size(self) -> int:
        """Bytes of the response's reports."""
        return self.response.report_size

    @property
    def messages(self) -> int:
        """Messages of the response's reports."""
        return self.response.messages

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """The response's report of one cell, from the same words of ``entropy``."""
        return self.response.randomize_one(value, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, messages, report_size], from the same words of ``entropy`` as the response's."""
        return self.response.randomize(values, entropy)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: what the response could have written."""
        return self.response.valid(reports)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """The response's counts. Raises INVALID if a row is not valid."""
        return self.response.tally(reports)

    def privacy(self) -> LocalPrivacy:
        """The law of a report: what is estimated from it changes nothing of that."""
        return self.response.privacy()
