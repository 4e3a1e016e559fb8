"""``shoal demo --federated``: a model learnt from devices that show nobody their row: rounds of
clipped and noised gradients, summed by secure aggregation.
"""
