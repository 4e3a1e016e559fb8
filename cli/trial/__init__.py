"""``shoal trial``: one's own data through the whole pipeline on this machine, with throw-away keys,
the truth beside the estimates.
"""
