"""A selector's tau for a rate that was asked for: requests, calibration, bits as written, thinning, the controller of
training."""
