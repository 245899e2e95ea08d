"""Recordings and sets of them, audio in and out. All other rooms read speech through here."""
