"""`python -m dtm_codec` is the command `dtm-codec`."""

from .cli import main

if __name__ == "__main__":
    main()
