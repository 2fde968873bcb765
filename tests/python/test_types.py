"""The package's types: mypy --strict finds nothing in the package, and in typed.py, of users' code, the
errors that it should; so does pyright, where it is installed."""
import os
import re
import shutil
import subprocess
import sys
import unittest

from support import ROOT

TYPED = os.path.join(ROOT, "tests", "python", "typed.py")


def expected():
    """{line: mypy's name of the error}"""
    with open(TYPED, encoding="utf-8") as file:
        return {number: found[1] for number, line in enumerate(file, 1)
                if (found := re.search(r"# expect (\S+)", line))}


def run(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


class Types(unittest.TestCase):
    def setUp(self):
        try:
            import mypy  # noqa: F401
            import torch  # noqa: F401
            import transformers  # noqa: F401
        except ImportError as error:
            self.skipTest(f"mypy, PyTorch and transformers are needed: {error}")

    def test_mypy(self):
        self.assertEqual(sys.version_info[0], 3)
        shown = run(sys.executable, "-m", "mypy", "-p", "headlight")
        self.assertIn("Success: no issues found", shown)
        shown = run(sys.executable, "-m", "mypy", TYPED)
        found = {int(line): kind for line, kind in
                 re.findall(r"typed\.py:(\d+): error: .*\[([a-z-]+)\]", shown)}
        self.assertEqual(found, expected(), shown)

    def test_pyright(self):
        pyright = shutil.which("pyright", path=os.path.dirname(sys.executable)) or shutil.which("pyright")
        if pyright is None:
            self.skipTest("pyright is not installed")
        shown = run(pyright, "--pythonpath", sys.executable, TYPED)
        found = {int(line) for line in re.findall(r"typed\.py:(\d+):\d+ - error", shown)}
        self.assertEqual(found, set(expected()), shown)


if __name__ == "__main__":
    unittest.main()
