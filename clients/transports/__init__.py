"""How bytes leave a device: the protocol of a transport, and its members."""
