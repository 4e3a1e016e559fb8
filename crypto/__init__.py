"""Sealing, signatures, key files and certificates. Pure: no sockets, no clock; disk only in
``keyfiles``.
"""
