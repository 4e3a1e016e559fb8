"""From tallies to what people read: the signed release, running totals, the report page."""
