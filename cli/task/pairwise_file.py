"""The parts of a task file that belong to secure aggregation: a vector's domain, and rounds whose
numbers are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.accounting.sums.sum_task import SumDesign, design_sum
from shoal.domain import Norm
from shoal.secagg import Mode

if TYPE_CHECKING:
    from shoal.cli.task.file import Reader

NORMS = {"l1": Norm.L1, "l2": Norm.L2, "coordinate": Norm.COORDINATE}
MODES = {"default": Mode.DEFAULT, "strict": Mode.STRICT, "helper": Mode.HELPER}
DOMAIN_KEYS = {"kind", "dimension", "names", "norm", "clip", "grid", "unit"}
_PHASES = {"join_s": 60, "share_s": 60, "mask_s": 120, "unmask_s": 60}
PAIRWISE_KEYS = {"mode", "noise", "cohort_max", "cohort_min", "dropout", *_PHASES}

SAMPLE = """\
# A Shoal task whose vectors are summed by secure aggregation (docs/SECAGG.md). Check it with `shoal task lint`; neighbours, threshold,
# word width and noise are computed from what stands here, never typed.

name = "visit-moments"              # required: lower case letters, digits, -
purpose = "health statistics"       # required: in plain words; owners consent per purpose
question = "Visits to a doctor this year, and their square"  # required: in plain words
aggregator = "pairwise"             # this is what makes it a sum; without it, reports are shuffled
admission = "enrolled"              # required for pairwise: strangers could be all of a device's neighbours
min_batch = 1000                    # required, devices: fewer in all rounds of a window are never released
honest_fraction = 0.9               # default 1.0: share of honest devices that you assume in every round
delta = 1e-8                        # required: of the guarantee of each round
target_epsilon = 1.0                # required: the noise is made for it
retention_s = 1209600               # required, seconds from a window's start: the window, its grace, and time to release
suite = "x25519-aes128"             # default; or "x25519-chacha20", "mlkem768-x25519-aes128" (post-quantum)

[domain]
kind = "vector"
names = ["visits", "visits squared"]  # one per coordinate; or dimension = 100000 without names
norm = "l2"                         # required: "l1", "l2" or "coordinate": in which sense a vector is clipped
clip = 400.0                        # required: the largest norm of one device's vector
unit = ""                           # default ""
# grid = 10000                      # default computed: steps that the clip is cut into

[pairwise]
mode = "default"                    # default; "strict": private even if shuffler and analyzer collude, where neither enrols devices;
                                    # "helper": one message per device, no neighbours, for large fleets
noise = "skellam"                   # default for l2 and coordinate; "discrete_laplace" (default for l1): pure epsilon
cohort_max = 500                    # required, devices of one round at most; in mode helper of a window's one sum
# cohort_min = 400                  # default four fifths of cohort_max: a round with fewer is not begun
dropout = 0.2                       # default 0.2: share of a round that may be lost at any stage
# join_s = 60                       # seconds that each phase waits for devices
# share_s = 60                      # twice: to share, and to check what was shared
# mask_s = 120
# unmask_s = 60

[windows]
start = {start}        # required: date and time with a zone
length_s = 604800                   # required, seconds
count = 52                          # required, windows
grace_s = 86400                     # default 0, seconds after a window in which its rounds may still go on
skew_s = 300                        # default 0, seconds that a device's clock may run ahead

[keys]                              # Ed25519 public keys, 64 hex digits each: `shoal keys signing`
key_authority = ""                  # required: signs the key schedule
shuffler = ""                       # required: signs the rounds' records
analyzer = ""                       # required: signs them too, and releases
enrolment = ""                      # required: signs device certificates (`shoal keys enrol`)

[shuffler]
address = "shuffler.example.org:7443"  # required: where devices take part
ca = "ca.pem"                       # required: PEM file that the shuffler's certificate chains to
"""


def read_sum(
    domain: Reader, pairwise: Reader, *, honest_fraction_ppm: int, epsilon: float, delta: float
) -> SumDesign:
    """Domain, noise and rounds of a pairwise task. Raises CONFIG naming the key, INVALID for what
    cannot be had.
    """
    if domain.get("kind", str) != "vector":
        raise domain.error("kind", 'with aggregator = "pairwise" it is "vector"')
    domain.only(DOMAIN_KEYS)
    names = domain.get("names", list, [])
    if not all(isinstance(name, str) for name in names):
        raise domain.error("names", "a list of texts, one per coordinate")
    dimension = domain.get("dimension", int, len(names))
    if dimension == 0:
        raise domain.error(
            "dimension", "give names, one per coordinate, or dimension, their number"
        )
    norm = domain.get("norm", str)
    if norm not in NORMS:
        raise domain.error("norm", f"one of {', '.join(NORMS)}")
    mode = pairwise.get("mode", str, "default")
    if mode not in MODES:
        raise pairwise.error("mode", f"one of {', '.join(MODES)}")
    dropout = float(pairwise.get("dropout", (int, float), 0.2))
    if not 0 <= dropout < 1:
        raise pairwise.error("dropout", "at least 0 and below 1")
    return design_sum(
        dimension=dimension,
        norm=NORMS[norm],
        clip=float(domain.get("clip", (int, float))),
        noise=pairwise.get("noise", str, "discrete_laplace" if norm == "l1" else "skellam"),
        mode=MODES[mode],
        cohort_max=pairwise.get("cohort_max", int),
        cohort_min=pairwise.get("cohort_min", int) if "cohort_min" in pairwise.table else None,
        dropout_ppm=round(dropout * 1_000_000),
        honest_fraction_ppm=honest_fraction_ppm,
        epsilon=epsilon,
        delta=delta,
        grid=domain.get("grid", int) if "grid" in domain.table else None,
        names=names,
        unit=domain.get("unit", str, "-") if "unit" in domain.table else "",
        phases=tuple(pairwise.get(name, int, default) for name, default in _PHASES.items()),
    )
