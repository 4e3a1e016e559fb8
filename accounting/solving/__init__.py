"""The certificate turned around: what a central epsilon needs."""
