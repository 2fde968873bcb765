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
        print(f"headlight: {error}", file=sys.stderr)
        sys.exit(3)
    os.execv(command, ["headlight", *sys.argv[1:]])


if __name__ == "__main__":
    main()
