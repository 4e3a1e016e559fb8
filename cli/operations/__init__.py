"""``shoal doctor``, ``shoal backup`` and ``shoal restore``: what keeps a deployment well
(docs/OPERATIONS.md).
"""
