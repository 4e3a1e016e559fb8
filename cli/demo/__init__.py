"""``shoal demo``: the whole pipeline on this machine, with real processes, TLS and real survey
answers.
"""
