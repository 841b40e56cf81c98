"""`python -m mlxchat` is the program."""

from .cli.main import main

if __name__ == "__main__":
    main()
