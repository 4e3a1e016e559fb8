"""``shoal agent run``: the agent as a service that measures, answers and sends by itself."""
