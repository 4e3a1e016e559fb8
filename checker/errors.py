"""What the checker raises."""

from __future__ import annotations


class UnreadableError(Exception):
    """Something can't be read or computed here: one sentence for people. ``file``: of several, the
    number of the one.
    """

    def __init__(self, sentence: str, file: int = 0) -> None:
        super().__init__(sentence)
        self.file = file
