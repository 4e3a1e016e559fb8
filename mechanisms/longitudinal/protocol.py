"""Mechanisms with a memory of their own: a permanent part that a device draws once, and fresh noise
in every window.

RAPPOR's permanent and instantaneous responses (Erlingsson, Pihur, Korolova, CCS 2014, section 3),
dBitFlip's chosen buckets (Ding, Kulkarni, Yekhanin, NeurIPS 2017, section 3) and LOLOHA's hash
function (Arcolezi, Pinzon, Palamidessi, Gambs, EDBT 2023) have one shape:

1. ``choose_one``: something drawn once per device and task that no value decides (a cohort, a hash
   function, a set of buckets).
2. ``key_of``: values that the choice does not tell apart share a key. Everything kept is kept per
   key.
3. ``remember_one``: the permanent answer of a key, drawn once and kept.
4. ``report_one``: one window's report: fresh noise on the permanent answer (or none: the permanent
   answer itself).

**An unchanged value.** All windows together are a post-processing of the choice and of one
permanent answer, the one of the value's key. So they cost ``permanent`` once, however many windows
there are: of choice and permanent answer together, and of any two values. One window's report alone
costs ``privacy``, which is never more. (Post-processing: Dwork, McSherry, Nissim, Smith, TCC 2006.)

**A value that changes.** Each further key has a permanent answer of its own, drawn independently
given the choice, and costs ``permanent`` again. What that adds up to is about *what* the values
were, given *when* the key changed: give the onlooker the choice, and in which windows the key was
the same. Then two histories with the same pattern differ by at most ``permanent`` for every key in
it, and no pattern has more than ``keys``. The pattern itself is not hidden: where reports have no
noise of their own (dBitFlip) two different reports prove a change of the key, with certainty; where
they have some, enough windows do. Nor is the choice hidden, where a report shows it: it is drawn
without looking at a value, and it may tell a device from others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from shoal.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from shoal.entropy import Entropy
    from shoal.privacy import LocalPrivacy


@runtime_checkable
class Longitudinal(Mechanism, Protocol):
    """``randomize_one(v)`` is choose, key_of, remember, report, drawn in this order: a device
    without a memory makes the same report.

    All methods but ``permanent`` run on the device: no numpy. All raise INVALID for a choice, key
    or permanent answer that the mechanism could not have made. Bytes are constant in length;
    neither they nor the randomness used tell anything but what the law allows.
    """

    @property
    def keys(self) -> int:
        """How many keys a device can have at most: so often is ``permanent`` paid at most, whatever
        the value does. May be huge.
        """
        ...

    def choose_one(self, entropy: Entropy) -> bytes:
        """What is drawn once per device and task; may be empty."""
        ...

    def key_of(self, choice: bytes, value: int) -> int:
        """In 0..keys-1, from a cell of the domain."""
        ...

    def remember_one(self, choice: bytes, key: int, entropy: Entropy) -> bytes:
        """The permanent answer of a key."""
        ...

    def report_one(self, choice: bytes, remembered: bytes, entropy: Entropy) -> tuple[bytes, ...]:
        """The messages of one window's report."""
        ...

    def permanent(self) -> LocalPrivacy:
        """The law of choice and permanent answer together, under every value: its epsilon0 is the
        lifetime cost of an unchanged value.
        """
        ...
