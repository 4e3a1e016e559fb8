"""One report from a value to its receipt: answering, sending, and what the owner hears of it."""
