"""How a device learns of tasks: from a shuffler, from a broker, from a folder. Importing the
package loads nothing.
"""
