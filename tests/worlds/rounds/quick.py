"""``shoal`` whose demo of rounds waits as long as a test needs: dead devices make every phase of
every round last to its end, and the demo's own are made for 200 devices on a small machine.
"""

from __future__ import annotations

import sys

from shoal.cli.demo.federated import asked
from shoal.cli.demo.sums import devices
from shoal.cli.main import main

PHASES = 5, 4, 4, 4  # seconds of join, share (and check), mask, unmask
START_S = 4
SPARE_S = 4

if __name__ == "__main__":
    devices._PHASES, devices._START_S, devices._SPARE_S = PHASES, START_S, SPARE_S
    asked._PHASES, asked._START_S, asked._SPARE_S = PHASES, START_S, SPARE_S
    asked.how_busy = lambda: 1  # what few devices do fits in any case
    sys.exit(main())
