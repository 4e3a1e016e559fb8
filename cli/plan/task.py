"""``shoal plan --emit``: the chosen mechanism as a task file, which wants texts, keys and addresses
filled in.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner import Plan
from shoal.cli.task.file import UNNAMED, UNSAID
from shoal.domain import Categories, Domain, Numeric

_TEXT = """\
# {made}
# Fill in what says FILL IN, check the file with `shoal task lint`, sign it with `shoal task sign`.
# `shoal task new` writes a sample in which every key is explained.

name = "{unnamed}"             # FILL IN: lower case letters, digits, -
purpose = "{unsaid}"                 # FILL IN: in plain words; owners consent per purpose
question = "{unsaid}"                # FILL IN: in plain words
# Planned, and certified together: reports in the smallest batch that is released, the share of honest and independent ones that you
# assume in every batch, and the central guarantee. A release that guarantees less is withheld.
min_batch = {min_batch}
honest_fraction = {honest}
delta = {delta!r}
target_epsilon = {target}
retention_s = 1209600               # seconds from a window's start: the window, its grace, and time to deliver
memoized = {memoized}
admission = "open"                  # or "enrolled", which is what makes an honest fraction worth its name

[domain]
{domain}
[mechanism]                         # planned: epsilon0 = {epsilon0}
name = "{mechanism}"
parameters = {{ {parameters} }}

[windows]
start = {start}
length_s = {length_s}{blank}# FILL IN: seconds
count = {windows}
grace_s = 86400                     # seconds after a window in which its reports are still taken
skew_s = 300

[keys]                              # FILL IN: Ed25519 public keys, 64 hex digits each: `shoal keys signing`
key_authority = ""
shuffler = ""
analyzer = ""

[shuffler]
address = "shuffler.example.org:7443"  # FILL IN
ca = "ca.pem"                       # FILL IN: PEM file that the shuffler's certificate chains to
"""


def task_text(plan: Plan, length_s: int = 604_800) -> str:
    """The TOML text. With keys and addresses filled in, `shoal task lint` certifies it at the
    plan's own epsilon. ``length_s``: of a window.
    """
    request, choice = plan.request, plan.choice
    spec = choice.spec
    if spec is None:
        raise TypeError("a choice has its integers")
    target = (
        repr(request.epsilon)
        if request.epsilon is not None
        else bound_text(choice.epsilon_upper, digits=6)
    )
    return _TEXT.format(
        unnamed=UNNAMED,
        unsaid=UNSAID,
        made=(
            f"Planned by `shoal plan`: {choice.candidate.title}, for {request.n} devices, central "
            f"epsilon <= {target}."
        ),
        min_batch=request.min_batch,
        honest=f"{float(request.honest_fraction):.6f}",
        delta=request.delta,
        target=target,
        memoized="true" if request.memoized else "false",
        domain=_domain(choice.candidate.domain),
        mechanism=spec.name,
        parameters=", ".join(f"{name} = {value}" for name, value in spec.parameters),
        epsilon0=bound_text(choice.epsilon0, digits=6),
        start=datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z"),
        windows=request.windows,
        length_s=length_s,
        blank=" " * max(1, 25 - len(str(length_s))),
    )


def _domain(domain: Domain) -> str:
    if isinstance(domain, Categories):
        labels = ",\n".join(f"  {json.dumps(name, ensure_ascii=False)}" for name in domain.names)
        bounds = f"lower_bounds = {list(domain.lower_bounds)}\n" if domain.lower_bounds else ""
        blank = (
            'planned; "no answer" is added by itself'
            if bounds
            else 'FILL IN, if these are not the names; "no answer" is added by itself'
        )
        return f'kind = "categories"\nlabels = [  # {blank}\n{labels},\n]\n{bounds}'
    if isinstance(domain, Numeric):
        unit = json.dumps(domain.unit, ensure_ascii=False)
        return (
            f'kind = "numeric"\nlow = {domain.low!r}\nhigh = {domain.high!r}\nlevels = '
            f"{domain.levels}  # planned\n"
            f"clip = {str(domain.clip).lower()}\nunit = {unit}\n"
        )
    return 'kind = "yes_no"\n'
