"""Where a device's own values are read from. Importing the package loads nothing."""
