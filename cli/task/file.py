"""A task as people write it: a TOML file, turned into a validated Task. Every mistake is one line
naming the key.
"""

from __future__ import annotations

import json
import math
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shoal.cli.output import public_key, read_bytes
from shoal.cli.task.pairwise_file import DOMAIN_KEYS, PAIRWISE_KEYS, read_sum
from shoal.cli.task.pairwise_file import SAMPLE as PAIRWISE_SAMPLE
from shoal.domain import Categories, Domain, Numeric, Words, YesNo, normal
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, create, design
from shoal.task import PPM, Admission, Aggregator, MechanismSpec, Task, WindowPlan
from shoal.toml import no_such_key, read_toml

SUITES = {"x25519-aes128": 1, "x25519-chacha20": 2, "mlkem768-x25519-aes128": 3}

SAMPLE = """\
# A Shoal task. Check it with `shoal task lint`, sign it with `shoal task sign`: from then on it never changes.

name = "outpatient-visit"           # required: lower case letters, digits, -
purpose = "health statistics"       # required: in plain words; owners consent per purpose
question = "Did you see a doctor this year?"  # required: in plain words
min_batch = 10000                   # required, reports: fewer are never released
max_batch = 0                       # reports: the window closes at this many; default 0 = when its time is over
honest_fraction = 0.9               # default 1.0: share of honest, independent reports that you assume in every batch
delta = 1e-8                        # required: of the central guarantee
target_epsilon = 0.5                # required: a release with a larger guaranteed central epsilon is withheld
retention_s = 1209600               # required, seconds from a window's start: the window, its grace, and time to deliver
memoized = false                    # default; true: a device repeats one permanent report per value, epsilon0 over all windows
admission = "open"                  # default: anybody may report; "enrolled": certified devices alone, each once per window
suite = "x25519-aes128"             # default; or "x25519-chacha20", "mlkem768-x25519-aes128" (post-quantum, larger)

[domain]
kind = "yes_no"                     # required: "yes_no", "categories" (labels, lower_bounds), "numeric" (low, high, levels, clip, unit)
                                    # or "words": any text is an answer, and labels are those that are counted

[mechanism]
name = "binary_rr"                  # required: {mechanisms} (docs/MECHANISMS.md)
epsilon0 = 1.0986122886681098       # required: local epsilon; ln 3 is the two-coin form
setting = ""                        # default "" = the mechanism's first; "oue", "g=64", ...: a wrong one is answered with the known ones
# or the integers themselves:  parameters = { yes_if_yes = 13835058055282163712, yes_if_no = 4611686018427387904 }

[windows]
start = {start}        # required: date and time with a zone
length_s = 604800                   # required, seconds
count = 52                          # required, windows
grace_s = 86400                     # default 0, seconds after a window in which its reports are still taken
skew_s = 300                        # default 0, seconds that a device's clock may run ahead

[keys]                              # Ed25519 public keys, 64 hex digits each: `shoal keys signing`
key_authority = ""                  # required: signs the key schedule
shuffler = ""                       # required: signs manifests
analyzer = ""                       # required: signs acknowledgements and releases
enrolment = ""                      # required with admission = "enrolled": signs device certificates, `shoal keys enrol`

[shuffler]
address = "shuffler.example.org:7443"  # required: where devices submit
ca = "ca.pem"                       # required: PEM file that the shuffler's certificate chains to
"""

_TOP = {
    "name",
    "purpose",
    "question",
    "min_batch",
    "max_batch",
    "honest_fraction",
    "delta",
    "target_epsilon",
    "retention_s",
}
_TOP |= {"admission", "suite", "aggregator", "memoized"}
_TABLES = {
    "domain": {"kind", "labels", "lower_bounds", "low", "high", "levels", "clip", "unit"}
    | DOMAIN_KEYS,
    "pairwise": PAIRWISE_KEYS,
    "mechanism": {"name", "epsilon0", "setting", "parameters"},
    "windows": {"start", "length_s", "count", "grace_s", "skew_s"},
    "keys": {"key_authority", "shuffler", "analyzer", "enrolment"},
    "shuffler": {"address", "ca"},
}


def sample(settings: list[str], *, pairwise: bool = False) -> str:
    """The commented sample, beginning today, with ``settings`` ("max_batch=12000",
    "keys.shuffler=...") filled in.

    Raises CONFIG for a key that the sample does not have.
    """
    text = (PAIRWISE_SAMPLE if pairwise else SAMPLE).replace(
        "{start}", datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z")
    )
    text = text.replace("{mechanisms}", ", ".join(f'"{name}"' for name in REGISTRY))
    for setting in settings:
        path, separator, value = setting.partition("=")
        table, _, key = path.strip().rpartition(".")
        text, found = _replaced(text, table, key, value.strip())
        if not separator or not found:
            raise ShoalError(
                Kind.CONFIG,
                f"--set {path}: no such key in the sample: give KEY=VALUE or TABLE.KEY=VALUE, as "
                'in "keys.shuffler=..."',
            )
    return text


# A key with its value, which may be a list; "# " before it where the sample only shows a default; a
# comment behind.
_LINE = re.compile(r'(?:# )?([a-z0-9_]+) = ("[^"]*"|\[[^\]]*\]|[^\s#]+)(\s+#.*)?$')


def _replaced(text: str, table: str, key: str, value: str) -> tuple[str, bool]:
    """The sample with one value replaced, and no longer a comment; texts are quoted where the
    sample quotes.
    """
    lines, current, found = text.splitlines(), "", False
    for number, line in enumerate(lines):
        if line.startswith("["):
            current = line[1 : line.index("]")]
        match = _LINE.match(line)
        if match and current == table and match[1] == key:
            quoted = json.dumps(value) if match[2].startswith('"') else value
            lines[number] = f"{key} = {quoted}{match[3] or ''}"
            found = True
    return "\n".join(lines) + "\n", found


# What `shoal plan --emit` leaves to be said; neither is linted or signed.
UNNAMED = "fill-in-a-name"
UNSAID = "fill in"


class Reader:
    """Typed access to a TOML table; every failure names file and key."""

    def __init__(self, file: str, table: dict[str, Any], prefix: str = "") -> None:
        self.file, self.table, self.prefix = file, table, prefix

    def error(self, key: str, reason: str) -> ShoalError:
        return ShoalError(Kind.CONFIG, f"{self.file}: {self.prefix}{key}: {reason}")

    def only(self, known: set[str]) -> None:
        for key in self.table.keys() - known:
            raise self.error(key, no_such_key(key, known))

    def get(self, key: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        if key not in self.table:
            if default is None:
                raise self.error(key, "required, but missing")
            return default
        value = self.table[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise self.error(key, "a value of another type is wanted here (see `shoal task new`)")
        return value


def read_task(path: Path) -> Task:
    """The Task of a TOML file, with a fresh salt. Raises CONFIG, INVALID with the file's and the
    key's name.
    """
    top = Reader(path.name, read_toml(path))
    top.only(_TOP | _TABLES.keys())
    summed = top.get("aggregator", str, "shuffled") == "pairwise"
    wanted = [name for name in _TABLES if name != ("mechanism" if summed else "pairwise")]
    if set(top.table) & ({"mechanism"} if summed else {"pairwise"}):
        raise top.error(
            "mechanism" if summed else "pairwise",
            f'not with aggregator = "{"pairwise" if summed else "shuffled"}": leave it out',
        )
    tables = {name: Reader(path.name, top.get(name, dict), f"{name}.") for name in wanted}
    for name, reader in tables.items():
        reader.only(_TABLES[name])
    try:
        return _build(path, top, tables)
    except ShoalError as error:
        if error.kind is Kind.CONFIG:
            raise
        raise ShoalError(Kind.CONFIG, f"{path.name}: {error}") from None


def _build(path: Path, top: Reader, tables: dict[str, Reader]) -> Task:
    keys, shuffler = tables["keys"], tables["shuffler"]
    suite = top.get("suite", str, "x25519-aes128")
    if suite not in SUITES:
        raise top.error("suite", f"one of {', '.join(SUITES)}")
    admission, enrolment_key = _admission(top, keys)
    fraction = float(top.get("honest_fraction", (int, float), 1.0))
    if not 0 < fraction <= 1:
        raise top.error("honest_fraction", "above 0 and at most 1")
    honest_ppm = int(fraction * PPM + 1e-6)  # downward: a smaller honest fraction is the safe side
    delta, epsilon = (
        float(top.get("delta", (int, float))),
        float(top.get("target_epsilon", (int, float))),
    )
    asked = _asked(top, tables, honest_ppm, epsilon, delta)
    return Task(
        salt=os.urandom(16),
        name=top.get("name", str),
        purpose=top.get("purpose", str),
        question=top.get("question", str),
        windows=_windows(tables["windows"]),
        min_batch=top.get("min_batch", int),
        max_batch=top.get("max_batch", int, 0),
        honest_fraction_ppm=honest_ppm,
        delta=delta,
        target_epsilon=epsilon,
        key_authority=public_key(
            keys.get("key_authority", str), f"{path.name}: keys.key_authority"
        ),
        shuffler_key=public_key(keys.get("shuffler", str), f"{path.name}: keys.shuffler"),
        analyzer_key=public_key(keys.get("analyzer", str), f"{path.name}: keys.analyzer"),
        shuffler_address=shuffler.get("address", str),
        shuffler_ca=read_bytes(path.parent / shuffler.get("ca", str), 64 * 1024),
        retention_s=top.get("retention_s", int),
        suite=SUITES[suite],
        admission=admission,
        enrolment_key=enrolment_key,
        memoized=top.get("memoized", bool, False),
        **asked,
    )


def _asked(
    top: Reader, tables: dict[str, Reader], honest_ppm: int, epsilon: float, delta: float
) -> dict[str, Any]:
    """The fields of a Task that say what is asked and how it is aggregated."""
    aggregator = top.get("aggregator", str, "shuffled")
    if aggregator == "pairwise":
        if not 1e-100 <= delta < 1:
            raise top.error("delta", "at least 1e-100 and below 1: 1e-6 or less is usual")
        made = read_sum(
            tables["domain"],
            tables["pairwise"],
            honest_fraction_ppm=honest_ppm,
            epsilon=epsilon,
            delta=delta,
        )
        return {
            "domain": made.domain,
            "mechanism": made.mechanism,
            "report_size": made.plan.vector_bytes(made.domain.dimension),
            "aggregator": Aggregator.PAIRWISE,
            "pairwise": made.plan,
        }
    if aggregator != "shuffled":
        raise top.error("aggregator", "one of shuffled, pairwise")
    domain = _domain(tables["domain"])
    spec = _mechanism(tables["mechanism"], domain)
    mechanism = create(spec, domain)
    return {
        "domain": domain,
        "mechanism": spec,
        "report_size": mechanism.report_size,
        "messages": mechanism.messages,
    }


def _admission(top: Reader, keys: Reader) -> tuple[Admission, bytes]:
    """Who may report, and the key that certifies them: empty where that is anybody."""
    words = {"open": Admission.OPEN, "enrolled": Admission.ENROLLED}
    name, key = top.get("admission", str, "open"), keys.get("enrolment", str, "")
    if name not in words:
        raise top.error("admission", f"one of {', '.join(words)}")
    if name == "open" and key:
        raise keys.error(
            "enrolment", 'only with admission = "enrolled": set that too, or leave the key out'
        )
    return words[name], public_key(
        key, f"{keys.file}: keys.enrolment"
    ) if name == "enrolled" else b""


def _domain(table: Reader) -> Domain:
    kind = table.get("kind", str)
    match kind:
        case "yes_no":
            table.only({"kind"})
            return YesNo()
        case "categories":
            table.only({"kind", "labels", "lower_bounds"})
            labels, bounds = table.get("labels", list), table.get("lower_bounds", list, [])
            if not all(isinstance(label, str) for label in labels) or not all(
                type(bound) is int for bound in bounds
            ):
                raise table.error("labels", "labels are texts and lower_bounds integers")
            return Categories(tuple(labels), tuple(bounds))
        case "numeric":
            table.only({"kind", "low", "high", "levels", "clip", "unit"})
            low, high = table.get("low", (int, float)), table.get("high", (int, float))
            return Numeric(
                float(low),
                float(high),
                table.get("levels", int),
                table.get("clip", bool, True),
                table.get("unit", str, ""),
            )
        case "words":
            table.only({"kind", "labels"})
            words = table.get("labels", list)
            if not all(isinstance(word, str) for word in words):
                raise table.error("labels", "the words to look for are texts")
            return Words(tuple(normal(word) or word for word in words))
    if kind == "vector":
        raise table.error(
            "kind", 'a vector is summed by secure aggregation alone: set aggregator = "pairwise"'
        )
    raise table.error("kind", "one of yes_no, categories, numeric, words")


def _mechanism(table: Reader, domain: Domain) -> MechanismSpec:
    name, setting = table.get("name", str), table.get("setting", str, "")
    if name not in REGISTRY:
        raise table.error("name", f"one of {', '.join(REGISTRY)}")
    if ("epsilon0" in table.table) == ("parameters" in table.table):
        raise table.error("epsilon0", "give either epsilon0 or parameters")
    try:
        settings = REGISTRY[name].settings(domain)
    except ShoalError as error:
        raise table.error("name", str(error)) from None
    if setting and setting not in {one.name for one in settings}:
        raise table.error("setting", f"of {name}, one of {', '.join(one.name for one in settings)}")
    if "epsilon0" in table.table:
        epsilon0 = float(table.get("epsilon0", (int, float)))
        if not (math.isfinite(epsilon0) and epsilon0 > 0):
            raise table.error("epsilon0", f"a finite number above 0, got {epsilon0:g}")
        return design(name, domain, epsilon0, setting)
    if setting:
        raise table.error(
            "setting",
            "goes with epsilon0: the parameters are all of the integers, leave one of the two out",
        )
    parameters = table.get("parameters", dict)
    if not all(type(value) is int for value in parameters.values()):
        raise table.error("parameters", "integers out of 2^64")
    return MechanismSpec.of(name, **parameters)


def _windows(table: Reader) -> WindowPlan:
    start = table.get("start", datetime)
    if start.tzinfo is None:
        raise table.error("start", "give a time zone, for example 2026-01-01T00:00:00Z")
    return WindowPlan(
        start_s=int(start.astimezone(UTC).timestamp()),
        length_s=table.get("length_s", int),
        count=table.get("count", int),
        grace_s=table.get("grace_s", int, 0),
        skew_s=table.get("skew_s", int, 0),
    )
