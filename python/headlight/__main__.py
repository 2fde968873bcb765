"""`python -m headlight` and the console script: the command."""
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    from ._command import find_command
    from ._library import Error
    try:
        command = find_command()
    except Error as error:
        sys.exit(f"headlight: {error}")
    os.execv(command, ["headlight", *sys.argv[1:]])


if __name__ == "__main__":
    main()
