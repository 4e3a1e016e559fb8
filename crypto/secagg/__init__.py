"""Secure aggregation: pads, secret sharing, the ring of neighbours, and the machines of device,
shuffler and analyzer. Pure.
"""
