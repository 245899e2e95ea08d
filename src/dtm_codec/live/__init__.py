"""Speech while it is being spoken: samples in, packets out, and samples again. Memory is bounded by the window."""
