"""What a second of speech costs: accounting (numpy only), the tau controller, calibration (torch)."""
