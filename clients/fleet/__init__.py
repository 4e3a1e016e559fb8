"""Many simulated devices against real services, for load tests. Importing the package loads
nothing.
"""
