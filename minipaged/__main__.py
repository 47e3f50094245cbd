"""`python -m minipaged`: the same as the command `minipaged`."""

from minipaged.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
