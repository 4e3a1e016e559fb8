"""Pages in the browser: ``shoal console`` for operator and analyst, and a device owner's own."""
