"""Training: data, losses, discriminators, trainer, checkpoints (paper Sections 3.1.6 and 4.1)."""
