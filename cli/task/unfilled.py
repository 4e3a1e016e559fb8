"""What `shoal plan --emit` leaves to be said of a task; neither is linted or signed."""

from __future__ import annotations

UNNAMED = "fill-in-a-name"
UNSAID = "fill in"
