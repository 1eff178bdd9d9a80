"""`python -m runyard_cli` is the command `runyard`."""

from runyard_cli.main import main

if __name__ == "__main__":
    main()
