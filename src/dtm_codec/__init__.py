"""DTM-Codec: speech at 400-1300 bits a second, spent where speech changes."""
