"""The ground floor: recordings and sets of them, audio in and out. Every room above reads speech through here."""
