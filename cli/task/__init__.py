"""``shoal task``: write, lint, sign, show and publish tasks."""
