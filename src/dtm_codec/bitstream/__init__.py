"""The `.dtm` file: the content of an utterance <-> bytes, as docs/bitstream.md specifies. No torch, no model."""
