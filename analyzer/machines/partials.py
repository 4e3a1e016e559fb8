"""Chunks that reach a worker in parts: each part is opened as it comes, and their sum is one
answer.

So what a worker sends, and its analyzer adds up, is one tally for several ranges; and what counts
is all of a chunk or nothing: a worker that is lost takes its parts with it, and the chunk is opened
again from its first one.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.analyzer.batches.chunk_source import Chunk
from shoal.analyzer.batches.row_opening import ChunkResult, JoinedChunk
from shoal.analyzer.machines.messages import ChunkPart
from shoal.errors import Kind, ShoalError


def split(chunk: Chunk, most: int) -> list[Chunk]:
    """The same rows in the same order, in parts of at most ``most`` rows; one part if there are
    none.
    """
    parts: list[list[range]] = [[]]
    room = most
    for rows in chunk:
        left = rows
        while left:
            if not room:
                parts.append([])
                room = most
            taken, left = left[:room], left[room:]
            parts[-1].append(taken)
            room -= len(taken)
    return list(parts)


class Partials:
    """In a worker, of one connection: what was opened of chunks that are not whole yet."""

    def __init__(self) -> None:
        self._held: dict[int, JoinedChunk] = {}

    def of(self, part: ChunkPart) -> Callable[[object], object]:
        """From the result of one part to what is answered: nothing, until the last part.

        It raises UNAVAILABLE if an earlier part is not here.
        """

        def add(result: object) -> object:
            if part.of == 1:
                return result
            held = self._held.pop(part.chunk, None) or JoinedChunk()
            if held.parts != part.at or not isinstance(result, ChunkResult):
                raise ShoalError(Kind.UNAVAILABLE, "a part of a chunk came without those before it")
            held.add(result)
            if held.parts == part.of:
                return held.result()
            self._held[part.chunk] = held
            return None

        return add

    def forget(self) -> None:
        """No chunk is under way any more."""
        self._held.clear()
