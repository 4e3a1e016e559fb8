"""Which recipes run, at which size, and who answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.analyzer.planner.deployments.recipes import Recipe, recipe
from shoal.cli.demo.recipes import new_words, populations
from shoal.domain import Numeric, Value
from shoal.errors import Kind, ShoalError
from shoal.questions.spelling import spell

MADE_UP = (
    "The devices and what they answer are made up; how they answer, the services and the "
    "certificates are real."
)

LIST = "list"
WORDS = "new-words"


@dataclass(frozen=True, slots=True)
class Deployment:
    """``asked``: the question, as devices get it. ``window``: what one is in the deployment;
    ``unit``: what the claimed epsilon is of. ``devices``, ``windows``: by default. ``values``: of
    so many devices in so many windows, a list for each window.
    """

    name: str
    asked: str
    window: str
    unit: str
    devices: int
    windows: int
    values: Callable[[int, int], list[list[Value]]]

    @property
    def recipe(self) -> Recipe:
        """What is claimed of it."""
        return recipe(self.name)

    def reports(self, devices: int | None, windows: int | None) -> int:
        """How many a run makes, all ways together; None: by default."""
        return 2 * (devices or self.devices) * (windows or self.windows)


def _emoji(devices: int, windows: int) -> list[list[Value]]:
    names = recipe("emoji-popularity").domain.labels[:-1]
    return [list(each) for each in populations.favourites(devices, windows, names, "emoji")]


def _health(devices: int, windows: int) -> list[list[Value]]:
    names = recipe("health-usage").domain.labels[:-1]
    return [list(each) for each in populations.favourites(devices, windows, names, "health")]


def _settings(devices: int, windows: int) -> list[list[Value]]:
    names = recipe("browser-settings").domain.labels[:-1]
    return [list(each) for each in populations.favourites(devices, windows, names, "settings")]


def _app_usage(devices: int, windows: int) -> list[list[Value]]:
    domain = recipe("windows-app-usage").domain
    if not isinstance(domain, Numeric):
        raise TypeError("app usage is a number")
    return [list(each) for each in populations.app_usage(devices, windows, domain.high)]


def _words(devices: int, windows: int) -> list[list[Value]]:
    """A word stays what it is."""
    made: list[Value] = list(populations.words(devices, new_words.NEW, new_words.KNOWN))
    return [made] * windows


def _places(devices: int, windows: int) -> list[list[Value]]:
    names = recipe("mobility-counts").domain.labels[:-1]
    return [list(each) for each in populations.places(devices, windows, names)]


DEPLOYMENTS: tuple[Deployment, ...] = (
    Deployment(
        "windows-app-usage",
        "For how many seconds was the app used in the last six hours?",
        "six hours",
        "a report",
        2_000,
        8,
        _app_usage,
    ),
    Deployment(
        "emoji-popularity",
        "Which emoji did you use most today?",
        "a day",
        "a user and day",
        2_000,
        7,
        _emoji,
    ),
    Deployment(
        "health-usage",
        "Which kind of health data did you use most today?",
        "a day",
        "a user and day",
        2_000,
        7,
        _health,
    ),
    Deployment(
        "browser-settings",
        "What is your browser's search engine or home page?",
        "a day",
        "a report",
        2_000,
        7,
        _settings,
    ),
    Deployment(
        "mobility-counts",
        "At which kind of place were you longest today?",
        "a day",
        "a user and day, of the published figures",
        2_000,
        7,
        _places,
    ),
    Deployment(
        WORDS,
        "Which word did you write that the dictionary lacks?",
        "a level",
        "a user and day",
        3_000,
        6,
        _words,
    ),
)


def known_words(discovery_longest: int) -> tuple[bytes, ...]:
    """What every dictionary has, in symbols: left out of what is looked for."""
    return tuple(sorted({spell(word, discovery_longest) for word in new_words.KNOWN}))


def deployment(name: str) -> Deployment:
    """Raises CONFIG for a name of none that runs."""
    for each in DEPLOYMENTS:
        if each.name == name:
            return each
    raise ShoalError(
        Kind.CONFIG,
        f"no recipe {name!r} runs: choose among {', '.join(each.name for each in DEPLOYMENTS)}",
    )
