"""Deployments that people cite, as data: what was claimed, in what unit, and the mechanism that
makes reports of that kind here.

A claim is a number *per something*: per report, per device and day, for as long as a value stays.
``claims.weigh`` puts each on the same footing. Sources say whether this project read them
(``checked``) or repeats them from memory; the numbers of a recipe's own (devices, cells, windows)
are for the arithmetic, not anybody's figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.analyzer.planner.question import Frequencies, Mean, wrong
from shoal.domain import Categories, Domain, Numeric


@dataclass(frozen=True, slots=True)
class Citation:
    """``text``: what it says, in our words. ``checked``: read while this was written; else it is
    recalled, and may be wrong in detail.
    """

    text: str
    where: str
    checked: bool


@dataclass(frozen=True, slots=True)
class Sought:
    """Words that nobody listed, as Shoal looks for them (docs/DISCOVERY.md): letter by letter, a
    level in each window, which every device answers. ``epsilon``: central, of all levels together.
    ``first``, ``longest``, ``most``: as ``Discovery`` has them.
    """

    epsilon: float
    first: int
    longest: int
    most: int

    @property
    def unit(self) -> str:
        """What an error is counted in."""
        return "devices"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One deployment. ``epsilon``: the number that is claimed; ``central``: of the published
    figures, behind a trusted server, and not of a report (then the reports' epsilon0 is what keeps
    it after shuffling). ``mechanism``, ``setting``, ``domain``: what makes such reports, registered
    under these names; where words are ``Sought``, it stands in for what is not here, and is there
    for the arithmetic alone. ``reports_per_day``: of a device; ``memoized``: permanent answers are
    kept, so that an unchanged value is paid for once. ``question``: the same one, as ``plan`` asks
    it. ``n``, ``delta``: the batch that shuffling is shown for.
    """

    name: str
    title: str
    epsilon: float
    mechanism: str
    setting: str
    domain: Domain
    question: Frequencies | Mean | Sought
    reports_per_day: int
    memoized: bool
    claim: str
    sources: tuple[Citation, ...]
    central: bool = False
    n: int = 100_000
    delta: float = 1e-6

    @property
    def counted(self) -> Frequencies | Mean:
        """What the errors of the deployment's own mechanism are predicted for."""
        if not isinstance(self.question, Sought):
            return self.question
        if not isinstance(self.domain, Categories):
            raise TypeError("beginnings of words are categories")
        return Frequencies(self.domain)


_APPLE = (
    "Apple, Differential Privacy Overview "
    "(apple.com/privacy/docs/Differential_Privacy_Overview.pdf)"
)
_LIST = (
    "D. Desfontaines, A list of real-world uses of differential privacy "
    "(desfontain.es/blog/real-world-differential-privacy.html)"
)
_SIX_HOURS = Numeric(0.0, 21_600.0, 25, True, "seconds")
_HEALTH = Categories(
    (
        "steps",
        "heart rate",
        "sleep",
        "workouts",
        "body mass",
        "blood pressure",
        "blood glucose",
        "nutrition",
        "reproductive health",
        "other",
    )
)
_EMOJI = Categories(tuple("😂❤😍😭😘😊👍😩🙏😁🔥😎🎉🤔😴😡🙄💕😅😉🤣💔👀✨💯🙈😱🤗😢😜👏💪"))
_SETTING = Categories(
    (
        "default",
        "search engine A",
        "search engine B",
        "search engine C",
        "home page A",
        "home page B",
        "other",
    )
)
_PLACES = Categories(
    (
        "retail and recreation",
        "grocery and pharmacy",
        "parks",
        "transit stations",
        "workplaces",
        "residential",
    )
)

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PAIRS = Categories(tuple(a + b for a in _LETTERS for b in _LETTERS))

RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="windows-app-usage",
        title="Windows: how long an app is used",
        epsilon=1.672,
        mechanism="one_bit_mean",
        setting="standard",
        domain=_SIX_HOURS,
        question=Mean(_SIX_HOURS.low, _SIX_HOURS.high, (2, 3, 4, 8), unit=_SIX_HOURS.unit),
        reports_per_day=4,
        memoized=True,
        claim="Local, of a permanent answer: one bit that is set more often the longer the app "
        "was used, every six hours. Kept answers "
        "mean that a number that stays on the same rounding costs it once, however many reports; "
        "each other rounding costs it again.",
        sources=(
            Citation(
                "One-bit mean estimation with permanent answers (alpha-point rounding), for "
                "counters collected repeatedly; deployed across "
                "millions of devices",
                "B. Ding, J. Kulkarni, S. Yekhanin, Collecting Telemetry Data Privately, NeurIPS "
                "2017, abstract",
                checked=True,
            ),
            Citation("epsilon = 1.672, a report every six hours", _LIST, checked=False),
        ),
    ),
    Recipe(
        name="health-usage",
        title="Apple: which kinds of health data are used",
        epsilon=2.0,
        mechanism="count_sketch",
        setting="",
        domain=_HEALTH,
        question=Frequencies(_HEALTH),
        reports_per_day=1,
        memoized=False,
        claim=(
            "Local, per device and day: one report a day at most, drawn anew each time, so that "
            "days add up."
        ),
        sources=(
            Citation("health types: epsilon = 2, the unit being a user-day", _LIST, checked=True),
            Citation(
                "reports without device identifiers; one donation a day; kept for three months at "
                "most",
                _APPLE,
                checked=False,
            ),
            Citation(
                "the sketch is the count mean sketch",
                "Apple, Learning with Privacy at Scale, 2017",
                checked=False,
            ),
        ),
    ),
    Recipe(
        name="emoji-popularity",
        title="Apple: which emoji are popular",
        epsilon=4.0,
        mechanism="count_sketch",
        setting="",
        domain=_EMOJI,
        question=Frequencies(_EMOJI),
        reports_per_day=1,
        memoized=False,
        claim="Local, per device and day: one report a day at most (a sketch whose bits are each "
        "flipped with probability "
        "1 / (1 + e^(epsilon / 2))), drawn anew each time, so that days add up.",
        sources=(
            Citation(
                "emoji suggestions: epsilon = 4, the unit being a user-day", _LIST, checked=True
            ),
            Citation(
                "bits flipped with probability 1 / (1 + e^(epsilon / 2)); no device identifiers, "
                "opt-in",
                _APPLE,
                checked=True,
            ),
            Citation(
                "one donation a day; 2,600 emoji, 65,536 hash functions to 1,024 bits",
                _APPLE,
                checked=False,
            ),
        ),
    ),
    Recipe(
        name="browser-settings",
        title="Chrome: settings and home pages, RAPPOR",
        epsilon=2.0,
        mechanism="rappor",
        setting="",
        domain=_SETTING,
        question=Frequencies(_SETTING),
        reports_per_day=1,
        memoized=True,
        claim="Local, of one report: fresh noise (the instantaneous response) on permanent bits. "
        "Many reports about one value average the "
        "fresh noise away, and what is left is the permanent response, whose epsilon is larger; "
        "each further value costs that again.",
        sources=(
            Citation(
                "Bloom filters and cohorts, permanent and instantaneous randomized response; used "
                "for Chrome settings",
                "U. Erlingsson, V. Pihur, A. Korolova, RAPPOR, CCS 2014 (arXiv:1407.6981)",
                checked=True,
            ),
            Citation(
                "2 per report, and 8 to 9 over a device's life",
                "as told to Wired, September 2017",
                checked=False,
            ),
        ),
    ),
    Recipe(
        name="mobility-counts",
        title="Google: visits by kind of place (community mobility reports)",
        epsilon=2.64,
        mechanism="krr",
        setting="standard",
        domain=_PLACES,
        question=Frequencies(_PLACES),
        reports_per_day=1,
        memoized=False,
        central=True,
        claim="Central, per person and day: Laplace noise on counts that a server makes of "
        "everybody's raw visits. Nothing holds against "
        "the server. Days add up. Here no server sees raw visits: reports are randomized on the "
        "device, and the same 2.64 holds of the "
        "shuffled batch.",
        sources=(
            Citation(
                "anonymized metrics made on a server from the data of users who opted in, "
                "published as changes from a baseline",
                "A. Aktay and others, COVID-19 Community Mobility Reports: Anonymization Process "
                "Description, arXiv:2004.04145, abstract",
                checked=True,
            ),
            Citation(
                "epsilon = 2.64 per user and day, over all metrics together", _LIST, checked=False
            ),
        ),
    ),
    Recipe(
        name="new-words",
        title="Apple: which words the keyboard's dictionary lacks",
        epsilon=16.0,
        mechanism="count_sketch",
        setting="",
        domain=_PAIRS,
        question=Sought(epsilon=4.0, first=2, longest=7, most=24),
        reports_per_day=1,
        memoized=False,
        claim="Local, per device and day. The deployment's Sequence Fragment Puzzle is not here: a "
        "device sends noisy sketches of a two-letter piece of its word, with its place and a short "
        "hash of the whole word, and of the word itself; the server puts pieces of one hash "
        "together. A sketch of one pair of letters that has all of the claimed epsilon stands in "
        "for its reports: it errs no more than several that share it. Shoal asks for letters one "
        "after the other instead, hides true answers among dummies, and follows what is frequent.",
        sources=(
            Citation(
                "QuickType suggestions learn words that were not known: epsilon = 16, the unit "
                "being a user-day",
                _LIST,
                checked=True,
            ),
            Citation(
                "a new term is cut into pieces of two characters, each with its place; a noisy "
                "sketch of a chosen piece is sent, with a hash of the term",
                "A. Thakurta and others, Learning new words, US patent 9,594,741, claims 1 to 5",
                checked=True,
            ),
            Citation(
                "several sketches at once, their epsilons adding up; 8-bit hashes",
                "Apple, Learning with Privacy at Scale, 2017, full version",
                checked=False,
            ),
            Citation("two donations a day of epsilon = 8", _APPLE, checked=False),
        ),
    ),
)


def recipe(name: str) -> Recipe:
    """Raises CONFIG for an unknown name."""
    for each in RECIPES:
        if each.name == name:
            return each
    raise wrong(
        f"there is no recipe {name!r}: choose among {', '.join(each.name for each in RECIPES)}"
    )
