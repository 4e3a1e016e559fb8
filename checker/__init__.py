"""An independent check of a release: signatures, and the upper end of its epsilon.

Shares no code with ``shoal.accounting``, nor with anything else of Shoal but the messages on the
wire: what it confirms does not rest on the code that it checks.
"""
