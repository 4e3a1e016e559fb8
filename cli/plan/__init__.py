"""``shoal plan``: the mechanism and its integers for the guarantee that holds after shuffling."""
