"""The analyzer's part in a round: vectors and shares in, the sum of all or a typed abort out."""
