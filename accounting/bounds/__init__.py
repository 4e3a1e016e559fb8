"""The theorems behind a certificate: one bound each."""
