"""Published bounds, for comparison. No certificate is made of them."""
