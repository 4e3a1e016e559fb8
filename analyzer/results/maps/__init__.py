"""The map of a release: what it says of one, and how it is drawn."""
