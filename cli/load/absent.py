"""When a load has nobody to send to: services that ended as they started, or that nobody
started.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.clients.fleet.plan import Progress

_LOOKS = 5  # in a row at which a service that answered before is silent, until it is said
_PATIENCE = 2 / 3  # of a report's patience: none has had an answer by then


class Absence:
    """Hears how a load goes, and says in one line that it has nobody to send to; ``end`` is called
    then, once.

    Where something was answered at least once, sending goes on for as long as patience lasts: who
    answered may come back. ``patience_s``: of one report, seconds. ``note`` is told of services
    that fall silent, or are back, once for each time.
    """

    def __init__(
        self, patience_s: float, end: Callable[[], object], note: Callable[[str], object]
    ) -> None:
        self._most_s, self._end, self._note = patience_s * _PATIENCE, end, note
        self._since: float | None = None  # the first failure
        self._answered = False
        self._silent: dict[str, int] = {}  # looks in a row
        self.verdict = ""

    @classmethod
    def after(cls, note: Callable[[str], object]) -> Absence:
        """For what follows the sending: it only tells."""
        absence = cls(0.0, lambda: None, note)
        absence._answered = True
        return absence

    def heard(self, now: float, progress: Progress) -> None:
        """``now``: seconds on a clock that never goes back."""
        self._answered = self._answered or bool(
            progress.acked or progress.refused or progress.surprises
        )
        if self._answered or not progress.trouble:
            return
        if self._since is None:
            self._since = now
        if now - self._since >= self._most_s:
            ended = "if the service was started just now, it ended as it started: its log says why"
            self._conclude(
                f"nothing was answered for {now - self._since:.0f} s: {progress.trouble}; {ended}"
            )

    def looked(self, silent: frozenset[str]) -> None:
        """Services that answered on their admin port when the load began, and did not at this
        look.
        """
        for name in sorted(self._silent.keys() - silent):
            if self._silent.pop(name) >= _LOOKS:
                self._note(f"the {name} answers again")
        for name in sorted(silent):
            self._silent[name] = self._silent.get(name, 0) + 1
            if self._silent[name] != _LOOKS:
                continue
            gone = (
                f"the {name} answered on its admin port and does not any more: it ended, and its "
                "log says why"
            )
            if self._answered or name != "shuffler":
                self._note(gone)
            else:
                self._conclude(gone)

    def _conclude(self, verdict: str) -> None:
        if not self.verdict:
            self.verdict = verdict
            self._end()
