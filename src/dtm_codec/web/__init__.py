"""The local pages: a demo to see and hear the codec, and a listening test to judge it (paper Section 4.2)."""
