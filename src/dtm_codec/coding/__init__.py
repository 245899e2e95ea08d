"""How an utterance is coded: in pieces of any length, at the rate that was asked for, on any backend."""
