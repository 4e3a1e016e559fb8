"""``shoal shuffler`` and ``shoal analyzer``: the services, and what their operators ask them."""
