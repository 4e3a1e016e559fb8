"""The shuffler: takes sealed reports, forgets who sent them and in which order, and hands whole
batches on. Opens none of them.
"""
