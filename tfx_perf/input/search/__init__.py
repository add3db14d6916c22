"""Which candidate is the fastest one that may be used."""
