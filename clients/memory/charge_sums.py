"""What everything that was charged comes to: the sums by task, with the charges themselves as a
witness.

A row that changed is told by its mark, but a sum that is *gone* by none, and would give its task's
budget to all others. So windows and nano-epsilon of all charges are held against all sums, every
time: of the charges only those are read that are new since the last committed look, in one
statement, because charges are only ever added. Where the two differ everything is read and
verified, and of each task the larger counts. What is confirmed as lost has no such witness: only
its marks and its pages are looked at.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shoal.clients.memory.marks import Damage
from shoal.ids import TaskId

if TYPE_CHECKING:
    from shoal.clients.memory.sqlite_file import SqliteFile

_NEW = "SELECT coalesce(max(number), 0), count(*), total(nano) FROM charge WHERE number > ?"


class Sums:
    """Of one file, under its lock. Blocks for the disk."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._version = -1  # of the file as other connections have written it
        # the last charge's number, how many there are, and what they come to
        self._known = 0, 0, 0.0
        # of a charge in the transaction under way: all rows that were written by then, and the sum
        self._charged = -1, 0

    def look(self) -> tuple[int, Damage | None]:
        """Nano-epsilon, the larger of what intact sums and intact charges say of each task, and one
        sum that is damaged or too small.
        """
        if self._file.writing and self._file.connection.total_changes == self._charged[0]:
            return self._charged[1], None
        marked, name, damage = self._file.marked, self._file.path.name, None
        total: Counter[bytes] = Counter()
        lost, bad = marked.sift("lost")
        if bad or marked.broken("lost"):
            damage = Damage(name, "lost", row=bad[0] if bad else ())
        sums, bad = marked.sift("tally")
        if bad or marked.broken("tally"):
            damage = Damage(name, "tally", row=bad[0] if bad else ())
        total.update({task: nano for task, _, nano in sums})
        windows = sum(row[1] for row in sums)
        if damage is not None or self._charges() != (windows, float(total.total())):
            charged: Counter[bytes] = Counter()
            for _, task, _, nano, _ in marked.sift("charge")[0]:
                charged[task] += nano
            for task in sorted(charged):
                if charged[task] > total[task]:
                    damage = damage or Damage(name, "tally", TaskId(task))
            total |= charged
        return total.total() + sum(row[2] for row in lost), damage

    def charged(self, total: int) -> None:
        """A charge was written just now, after a look in the same transaction that found no damage:
        ``total``, nano-epsilon with it. Asked once more before anything else is written, nothing is
        read again.
        """
        self._charged = self._file.connection.total_changes, total

    def ended(self) -> None:
        """The transaction is over, or a part of it was undone."""
        self._charged = -1, 0

    def _charges(self) -> tuple[int, float]:
        """How many, and nano-epsilon; as they stand there, so that they only say whether to look
        closer.
        """
        version = self._file.read("PRAGMA data_version")[0][0]
        number, count, nano = self._known if version == self._version else (0, 0, 0.0)
        newest, more, cost = self._file.read(_NEW, (number,))[0]
        charges = (max(number, newest), count + more, nano + cost)
        if not self._file.writing:  # what a transaction wrote may be undone yet
            self._version, self._known = version, charges
        return charges[1:]

    def forget(self) -> None:
        """After charges were mended."""
        self._version = -1
