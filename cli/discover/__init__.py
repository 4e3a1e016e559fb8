"""``shoal discover``: words that many devices hold, without a list of them."""
