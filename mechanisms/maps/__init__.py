"""Mechanisms for places on a map, whose cells have rows and columns."""
