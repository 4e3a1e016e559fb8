"""What a device's owner allows: policy, consent, rules for values, and what is guaranteed to
them.
"""
