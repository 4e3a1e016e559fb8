"""Predicted against observed: the production code on made-up devices, here or on other machines."""
