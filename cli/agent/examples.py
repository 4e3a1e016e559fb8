"""What stands below the help of the commands of ``shoal agent``: examples, and what to know."""

from __future__ import annotations

ALL = """Examples:
  shoal agent run --config agent.toml
      answer tasks from local sources, in every window, until stopped
  shoal agent report --config agent.toml visits 3
      answer the task "visits" in its current window
  echo 3 | shoal agent report --config agent.toml visits -
      the same, with the value out of sight of other processes
  shoal agent report --config agent.toml moments '[1.5, 2]'
      take part in a sum: waits, often minutes, until the round is over
  shoal agent report --config agent.toml visits --no-answer
      take part without an answer
  shoal agent flush --config agent.toml
      send what waits
  shoal agent status --config agent.toml --json
      tasks, the owner's consent, and every report's standing
  shoal agent explain --config agent.toml visits
      what a task learns, what is promised, and what is not
  cat row.json | shoal agent learn --config agent.toml model - --releases releases
      what this device would answer to a task that learns a model; sends nothing
  shoal agent consent --config agent.toml visits allow
      agree to the purpose of a task; without names: list all
  shoal agent ledger --config agent.toml
      everything that this device was asked, answered, sent and charged
  shoal agent budget --config agent.toml
      what answers may cost, have cost, and what is left
  shoal agent memory --config agent.toml
      whether what this device remembers is whole, and not an older copy
  shoal agent console --config agent.toml --open
      all of that in the browser

Exit status: 0 ok, 1 the work failed, 2 the request was wrong. A report that waits is ok, but for
flush, whose work is to send: it ends with 1 unless everything that waited was delivered.
"""

RUN = """Examples:
  shoal agent run --config agent.toml
      until SIGTERM or Ctrl-C; SIGHUP reads agent.toml again
  shoal agent run --config agent.toml --once
      measure what is due in the current windows, send once, end

A task is answered if its purpose is agreed to and [sources.TASK] in agent.toml says where its value
is. One line is logged whenever something changes. systemd unit: deploy/systemd/shoal-agent.service
"""

EXPLAIN = """Examples:
  shoal agent explain --config agent.toml visits
  shoal agent explain --config agent.toml 0a1b2c3d --json    by the first digits of its id
"""

LEARN = """Examples:
  shoal agent learn --config agent.toml model '{"row": [63, 0.5], "yes": true}'
      the first round: the gradient of that row, shortened, and one draw of it with noise
  cat row.json | shoal agent learn --config agent.toml model - --releases releases
      a later round, at the model that follows from the releases before
  cat row.json | shoal agent learn --config agent.toml model - --releases releases --send
      the same, and take part in the window's round: waits, often minutes, until it is over

Releases are verified, one window after the other; none may be missing. Without --send nothing is
sent, charged or kept, whatever the owner agreed to.
"""

CONSENT = """Examples:
  shoal agent consent --config agent.toml
      list every purpose: allowed, denied or not asked
  shoal agent consent --config agent.toml visits allow
      agree to the purpose of the task "visits"
  shoal agent consent --config agent.toml visits deny
      deny it: what waits is deleted, memoized answers are forgotten
  shoal agent consent --config agent.toml visits ask
      take the answer back: as if never asked, nothing is sent
  shoal agent consent --config agent.toml "Planning of clinics" deny
      by the purpose's exact words
  shoal agent consent --config agent.toml visits --accept-epsilon0
      agree to this very task, though it asks for more than max_epsilon0
  shoal agent consent --config agent.toml visits ask --accept-epsilon0
      take that back

What policy.purposes in agent.toml, or a fleet's file, denies stays denied. A running agent heeds
the answer at its next step.
"""

LEDGER = """Examples:
  shoal agent ledger --config agent.toml
  shoal agent ledger --config agent.toml --task visits --since 120
  shoal agent ledger --config agent.toml --json
      {"entries": [...], "head": {...}, "verified": true, "budget": {...}}
  shoal agent ledger --config agent.toml --verify 120:5e88...
      that the ledger still has the 120 entries of a head noted before

The whole chain of hashes is verified first. An entry that was altered, left out or moved: exit
status 1, and one line that names it. Note the head that is shown last somewhere else: only that
shows a chain that was computed anew.
"""

BUDGET = """Examples:
  shoal agent budget --config agent.toml
  shoal agent budget --config agent.toml --json
      {"limit": 100.0, "spent": 12.0, "left": 88.0, "tasks": [...]}; limit null: none is set
"""

MEMORY = """Examples:
  shoal agent memory --config agent.toml
  shoal agent memory --config agent.toml --confirm-set-back
      say what is lost, ask, then go on without it
  shoal agent memory --config agent.toml --confirm-damage
      say what is damaged, ask, then put what is safe in its place
  shoal agent memory --config agent.toml --confirm-set-back --yes
      without asking

Where the disk damaged something, only the tasks concerned get no answer. What is put in its place
never gives budget back. A memory that is older than the head beside it (restored, replaced, cut, or
removed) answers and sends nothing until its owner confirms.
Exit status: 0 it is whole, or confirmed now; 1 it is damaged or was set back, or its ledger does
not hold.
"""

CONSOLE = """Examples:
  shoal agent console --config agent.toml --open
      until Ctrl-C; beside an agent that runs, too
  shoal agent console --config agent.toml --listen 127.0.0.1:7460 --json
      {"url": ...} once pages are served

The address that is printed opens once, and whoever opens it is taken for the owner: don't pass it
on. Looking sends nothing. It wants the extra [console].
"""
