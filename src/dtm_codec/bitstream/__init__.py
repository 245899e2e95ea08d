"""The `.dtm` file: `Encoded` <-> bytes, as docs/bitstream.md specifies. Knows numpy, no torch and no model."""
