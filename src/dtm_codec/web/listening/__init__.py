"""A MUSHRA-style listening test as in the paper's Section 4.2: prepared, taken in a browser, evaluated."""
