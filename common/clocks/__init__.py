"""Time: clocks behind a seam, the rule when one may be believed, and who keeps the evidence; pauses
between attempts.
"""
