"""``python -m onthedot``: the command line."""

from onthedot.cli import main

if __name__ == "__main__":
    main(prog_name="onthedot")
