"""Networks: spectra, windowed transformers, resampling in time, quantizers. They know no files, rates or training."""
