"""Listening tests, MUSHRA-style as in the paper's Section 4.2, A/B and A/B/X: prepared, taken on the web, evaluated."""
