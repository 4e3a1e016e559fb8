"""What keeps reports until they are delivered: the protocol, and its members."""
