"""Why a source gave no value."""

from __future__ import annotations


class SourceError(Exception):
    """A short reason for the log and the ledger. It never holds anything that the source said: that
    may be the value itself.
    """
