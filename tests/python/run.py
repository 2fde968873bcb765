"""run.py - runs the tests beside it, or those named, and prints TAP.

    HEADLIGHT=build/headlight python3 tests/python/run.py [test_model ...]
"""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


class Tap(unittest.TestResult):
    """One line per test, with errors as comments before it."""
    number = 0

    def startTestRun(self):
        self.bad = set()

    def say(self, good, test, note=""):
        self.number += 1
        print(f"{'ok' if good else 'not ok'} {self.number} - {test.id()}{note}", flush=True)

    def explain(self, test, error):
        for line in self._exc_info_to_string(error, test).splitlines():
            print("#", line)

    def fail(self, test, error):
        self.explain(test, error)
        if test.id() not in self.bad:  # one of its subtests has failed before
            self.say(False, test)

    def addSuccess(self, test):
        if test.id() not in self.bad:
            self.say(True, test)

    def addSkip(self, test, reason):
        self.say(True, test, f" # SKIP {reason}")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.fail(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self.fail(test, error)

    def addSubTest(self, test, subtest, error):
        """A test with subtests has one line, with the first failure."""
        super().addSubTest(test, subtest, error)
        if error is not None:
            print(f"# {subtest}")
            self.explain(test, error)
            if test.id() not in self.bad:
                self.say(False, test)
            self.bad.add(test.id())


def same_products():
    """Chooses headlight's OpenBLAS kernels before numpy loads OpenBLAS, as the program does.  With the
    same kernels in both, numbers are equal to the last bit.  Must be called before numpy is
    imported."""
    with open("/proc/cpuinfo") as file:
        flags = file.read()
    core = "SkylakeX" if "avx512vl" in flags else "Haswell" if "avx2" in flags else None
    if core is not None:
        os.environ.setdefault("OPENBLAS_CORETYPE", core)


def main(names):
    same_products()
    sys.path[:0] = [HERE, os.path.join(ROOT, "python")]
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(names) if names else loader.discover(HERE, "test_*.py")
    print(f"1..{suite.countTestCases()}")
    result = Tap()
    result.startTestRun()
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
