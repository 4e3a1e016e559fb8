"""Deployments that people cite: what is claimed of them, what that means, and the ways to ask what
they ask.
"""
