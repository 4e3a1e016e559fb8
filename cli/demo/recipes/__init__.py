"""``shoal demo --recipe``: deployments that people cite, run end to end with made-up devices, and
what each way really costs.
"""
