"""The agent's configuration file: its keys, their units and ranges, and how they are read."""
