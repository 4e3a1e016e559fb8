"""``shoal demo --secagg``: vectors of devices, summed by secure aggregation while some of them are
killed.
"""
