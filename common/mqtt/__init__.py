"""MQTT: topics, and a connection to a broker that comes back by itself. Importing the package loads
nothing.
"""
