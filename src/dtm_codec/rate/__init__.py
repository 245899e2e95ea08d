"""A selector's tau for a rate that was asked for: requests, calibration, the controller of training."""
