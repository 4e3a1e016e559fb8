"""Who would have to work together to learn what: the matrix of docs/THREAT_MODEL.md as data, for
the column of one kind of task. A test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.accounting.several_messages.of_mechanism import METHODS
from shoal.console.operator.holdings import Release
from shoal.console.words import odds
from shoal.errors import ShoalError
from shoal.mechanisms.several.protocol import Several, sizes_tell
from shoal.mechanisms.several.registry import create_any
from shoal.task import Task

KINDS = ("single", "memoized", "sum", "strict sum", "helper", "several", "several, drawn")
_SUMS = frozenset({"sum", "strict sum", "helper"})
_AS_BEFORE = "the same"
# of several messages, where their numbers tell (``sizes_tell``)
_TELLS = (
    "; if its noise is of + and - and no message is empty, that number and the release tell more "
    "than epsilon says"
)
_REMAINS = "; epsilon0 remains"
# who, and what they learn of each kind of task, in the order of KINDS; _AS_BEFORE: as to its left
MATRIX: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("network, relay or broker alone", ("part",) * 7),
    (
        "shuffler alone",
        (
            "part",
            "part, over windows if enrolled",
            "part",
            "part",
            "part",
            f"part, and how many messages, which no value decides{_TELLS}",
            f"the same{_REMAINS}",
        ),
    ),
    (
        "analyzer alone",
        (
            "nobody's answers, unordered",
            "the same; answers that few give link over windows (epsilon0)",
            "sums of rounds",
            "sums of rounds",
            "the window's sum",
            "the mixture of all messages, and how many devices sent them",
            _AS_BEFORE,
        ),
    ),
    ("key authority alone", ("nothing",) * 7),
    ("enrolment authority alone", ("nothing",) * 7),
    ("task authority alone", ("nothing",) * 7),
    (
        "other devices",
        (
            "nothing; with the release, the total less their own",
            _AS_BEFORE,
            _AS_BEFORE,
            _AS_BEFORE,
            _AS_BEFORE,
            "nothing; with the release, the total less their own",
            _AS_BEFORE,
        ),
    ),
    (
        "shuffler + analyzer",
        (
            "**answer**",
            "**answer**, once per distinct value, linked over windows",
            "**vector**",
            "one sum per round of all honest devices alive",
            "**vector**",
            "**value**",
            "**answer**",
        ),
    ),
    (
        "shuffler + key authority",
        (
            "part: no key that neither analyzer nor shuffler signed is taken",
            _AS_BEFORE,
            _AS_BEFORE,
            _AS_BEFORE,
            _AS_BEFORE,
            "part: no key that neither analyzer nor shuffler signed is taken",
            _AS_BEFORE,
        ),
    ),
    ("network + key authority", ("part",) * 7),
    (
        "analyzer + key authority",
        (
            "as the analyzer alone",
            _AS_BEFORE,
            _AS_BEFORE,
            _AS_BEFORE,
            _AS_BEFORE,
            "as the analyzer alone",
            _AS_BEFORE,
        ),
    ),
    (
        "network + shuffler",
        (
            "part; with the open window's file, which sealed report came from where",
            _AS_BEFORE,
            "part",
            "part",
            "part",
            "part; with the open window's file, which sealed messages came together, "
            "and from where",
            _AS_BEFORE,
        ),
    ),
    (
        "network + analyzer",
        (
            "as each alone, while the hop key is the shuffler's",
            _AS_BEFORE,
            _AS_BEFORE,
            _AS_BEFORE,
            _AS_BEFORE,
            "as each alone, while the hop key is the shuffler's: all frames have one size",
            _AS_BEFORE,
        ),
    ),
    (
        "shuffler + enrolment authority",
        (
            "part, by name; can admit devices of its own and put one honest device "
            "among reports that it knows: the *release* then protects it by epsilon0 "
            "alone",
            _AS_BEFORE,
            "the same, by its own share of noise",
            _AS_BEFORE,
            _AS_BEFORE,
            "part, by name; can admit devices of its own and put one honest device "
            "among messages that it knows: its own share of the noise then protects it "
            "alone, which is next to nothing",
            "part, by name; can admit devices of its own and put one honest device "
            "among messages that it knows: epsilon0 then protects it, with its own "
            "share of the noise",
        ),
    ),
    (
        "analyzer + enrolment authority",
        (
            "as the analyzer alone, less the answers of devices of their own making: "
            "epsilon0 remains",
            _AS_BEFORE,
            "sums less their own vectors",
            _AS_BEFORE,
            _AS_BEFORE,
            "as the analyzer alone, less the messages of devices of their own making: "
            "with fewer honest devices than `shares` nothing is proven",
            "as the analyzer alone, less the messages of devices of their own making: "
            "epsilon0 remains",
        ),
    ),
    (
        "shuffler + analyzer + enrolment authority",
        (
            "**answer**",
            "**answer**",
            "**vector**",
            "**vector**: all neighbours may be theirs",
            "**vector**",
            "**value**",
            "**answer**",
        ),
    ),
    (
        "analyzer or shuffler + other devices",
        (
            "as without them, at a smaller n: what `honest_fraction` assumes; above it,"
            " as with the enrolment authority",
            _AS_BEFORE,
            _AS_BEFORE,
            "the same, up to the share of corrupt devices that the task plans for",
            _AS_BEFORE,
            "as without them, while at least `shares` devices are honest; with fewer "
            "nothing is proven",
            "as without them, while at least `shares` devices are honest; with fewer "
            "epsilon0 remains",
        ),
    ),
    (
        "task authority + anybody who carries frames",
        (
            "**answer** of devices that take a task made for it: it may name services of its own",
            _AS_BEFORE,
            "**vector**",
            "**vector**, if it names its own enrolment authority",
            "**vector**",
            "**value** of devices that take a task made for it: it may name services of its own",
            "**answer** of devices that take a task made for it: it may name services of its own",
        ),
    ),
)
# of sums the matrix says "the same, by its own share of noise", which wants the whole sentence
_NEIGHBOURS = (
    "shuffler + enrolment authority",
    "part, by name; can admit devices of its own and put one honest device among vectors that it "
    "knows: its own share of the noise then protects it alone",
)
_MEANING = {
    "answer": "its randomized report, and whose it is: epsilon0 protects what it says",
    "value": "its true answer, and whose it is: nothing else protects it",
    "vector": "its vector, with its own share of the noise",
    "part": "that it takes part: addresses, times and sizes",
}


@dataclass(frozen=True, slots=True)
class Learned:
    """``who`` works together, and ``what`` they learn of one honest device beyond what is
    published. ``own``: its own randomized report, or its own vector.
    """

    who: str
    what: str
    own: bool


def kind_of(release: Release) -> str:
    """Which column of the matrix a release is about: one of ``KINDS``."""
    rounds = release.get("rounds")
    if rounds is not None:
        return {"strict": "strict sum", "helper": "helper"}.get(rounds["mode"], "sum")
    if release["privacy"].get("epsilon0", 0.0) is None:  # a message is the value itself
        return "several"
    if release["privacy"].get("method") in METHODS:
        return "several, drawn"
    return "memoized" if "memoized" in release["privacy"] else "single"


def numbers_tell(task: Task | None) -> bool:
    """Whether the shuffler learns of the noise by numbers of messages; True where ``task`` can't be
    read.
    """
    if task is None:
        return True
    try:
        made = create_any(task.mechanism, task.domain)
    except ShoalError:
        return True
    return isinstance(made, Several) and sizes_tell(made)


def matrix(kind: str, *, tells: bool = True) -> list[Learned]:
    """The column of one of ``KINDS``, as people read it. ``tells``: with what ``numbers_tell``
    asks.
    """
    column = KINDS.index(kind)
    return [_learned(who, cells, column, tells=tells) for who, cells in MATRIX]


def _learned(who: str, cells: tuple[str, ...], column: int, *, tells: bool) -> Learned:
    text = cells[column]
    for before in reversed(cells[:column]):
        if text.startswith(_AS_BEFORE):
            text = before + text.removeprefix(_AS_BEFORE)
    if who == _NEIGHBOURS[0] and KINDS[column] in _SUMS:
        text = _NEIGHBOURS[1]
    if not tells and _TELLS in text:
        text = text.replace(_TELLS, "").removesuffix(_REMAINS)
    own = "**" in text
    for mark in ("**", "`", "*"):
        text = text.replace(mark, "")
    return Learned(who, text.replace("honest_fraction", "the honest fraction"), own)


def meaning(kind: str) -> list[tuple[str, str]]:
    """What the words of the matrix mean, for one kind of task."""
    used = {learned.what.partition(" ")[0].strip(",;:") for learned in matrix(kind)}
    return [(word, said) for word, said in _MEANING.items() if word in used]


def together(release: Release) -> tuple[float | None, str]:
    """What remains if shuffler and analyzer work together: an upper bound on epsilon (None: nothing
    is promised), and how often somebody who would bet 50:50 is then right at most.
    """
    privacy, rounds = release["privacy"], release.get("rounds")
    epsilon = privacy["epsilon0"] if rounds is None else rounds["epsilon_together"]
    return epsilon, odds(epsilon, privacy["delta"])
