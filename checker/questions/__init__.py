"""What a signed task asks, and whether devices answer it at all: written from docs/WIRE.md."""
