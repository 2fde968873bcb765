"""test_package.py - `pip install .` without a network, into a temporary folder."""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import ROOT


class Package(unittest.TestCase):
    def test_what_pip_installs_runs(self):
        if importlib.util.find_spec("pip") is None:
            self.skipTest("no pip")
        with tempfile.TemporaryDirectory() as folder:
            library = os.environ.get("HEADLIGHT_LIBRARY", ROOT + "/build/libheadlight.so")
            for name in ("python/headlight", "python/build_package.py", "python/README.md",
                         "pyproject.toml", "include/headlight/base.h", "LICENSE"):
                source, copy = os.path.join(ROOT, name), os.path.join(folder, "source", name)
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, copy)
            os.makedirs(folder + "/source/build")
            os.symlink(os.path.abspath(library), folder + "/source/build/libheadlight.so")
            done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                                   "--no-index", "--no-input", "--disable-pip-version-check",
                                   "--target", folder + "/installed", folder + "/source"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            env = {key: value for key, value in os.environ.items() if not key.startswith("HEADLIGHT")}
            code = "import headlight; print(headlight.__file__, headlight.__version__)"
            shown = subprocess.run([sys.executable, "-B", "-c", code], cwd=folder, check=True,
                                   capture_output=True, text=True,
                                   env={**env, "PYTHONPATH": folder + "/installed"}).stdout.split()
            self.assertTrue(shown[0].startswith(os.path.realpath(folder) + "/installed"), shown)
            self.assertTrue(os.path.exists(folder + "/installed/headlight/libheadlight.so"))
            self.assertTrue(os.path.exists(folder + "/installed/headlight/py.typed"))
