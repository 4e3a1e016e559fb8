"""One frontier over mechanisms of one message and of several, and what each costs."""
