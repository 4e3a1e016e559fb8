"""What privacy by distance is and is not, in plain words: for a device's owner, a release and its
page. Every figure is rounded to the side that promises less.
"""

from __future__ import annotations

from shoal.accounting.meaning import best_guess, bound_text, percent_text
from shoal.accounting.metric import MetricGuarantee


def metric_sentences(found: MetricGuarantee, windows: int, *, memoized: bool = False) -> list[str]:
    """One sentence or two per item: what is promised by distance first, then what is not.
    ``windows``: of the task, each of which is drawn anew, unless it is ``memoized``.
    """
    guess = percent_text(best_guess(found.epsilon0, 0.0))
    lines = [
        "It is a promise by distance: near places hide one another, far ones do not. Seen alone, "
        "a report changes the odds between two places d kilometres apart by a factor of at most "
        f"exp({bound_text(found.epsilon_per_km)} x (d + {_km(found.diagonal_m)})), the latter the "
        "diagonal of a cell of the map.",
        *(_move(found, at) for at in range(len(found.moves))),
        "Not promised: that nobody learns in which part of the map you are, or in which town. Two "
        f"ends of the map are {_km(found.across_m)} km apart or more, and one report tells which "
        f"of them it is in up to {guess} of such guesses: epsilon0 = {bound_text(found.epsilon0)}.",
        "Not promised: anything against what is known already. Odds move by that factor from where "
        "they were: where there is one house within the distance, or one road, hiding among the "
        "places around it hides nothing.",
        _kept() if memoized else _repeated(found, windows),
        "Elsewhere, off the map or without an answer, is one answer: where you are then is not "
        "told at all. But whether you are on the map has no distance: between any place of it and "
        f"elsewhere a report tells up to epsilon0 = {bound_text(found.epsilon_elsewhere)}.",
    ]
    return [line for line in lines if line]


def _move(found: MetricGuarantee, at: int) -> str:
    move = found.moves[at]
    alone, shuffled = (
        f"{percent_text(best_guess(epsilon, delta))} right guesses (epsilon {bound_text(epsilon)})"
        for epsilon, delta in ((move.epsilon0, 0.0), (move.epsilon_upper, found.delta))
    )
    return (
        f"What {move.radius_m:g} m buy: between two places at most that far apart, held "
        f"equally likely, one report alone allows {alone}; behind the shuffler, with the other "
        f"devices anywhere, {shuffled}."
    )


def _repeated(found: MetricGuarantee, windows: int) -> str:
    if windows == 1:
        return (
            "Asked once. Where another task or window asks again, epsilons per kilometre add up: a "
            "home that is reported every day is found in the end."
        )
    return (
        f"Repeated: each of the {windows:,} windows is drawn anew, and epsilons add up: of a place "
        f"that stays, as a home does, all together promise {bound_text(found.repeated(windows))} "
        f"per kilometre and not {bound_text(found.epsilon_per_km)}: it is found in the end."
    )


def _kept() -> str:
    return (
        "Repeated: a place is drawn once, and what was drawn is sent again in every window, so "
        "that many tell no more of a place that stays than one report seen alone. What the "
        "shuffler adds holds while one window was opened. Every other place is a draw more: of a "
        "device that moves, epsilons per kilometre add up."
    )


def _km(metres: float) -> str:
    return bound_text(metres / 1000.0)
