"""A notebook that is run without a browser: what its cells show.  Needs nbclient and ipykernel."""
import os
import unittest

from support import ROOT

MISSING = None
try:
    import ipykernel  # noqa: F401
    import nbclient
    import nbformat
except ImportError as error:
    MISSING = f"nbclient and ipykernel are needed: {error}"

CELLS = ("import headlight\nheadlight.show('models/demo', 'Alice was beginning to get very tired')",
         "model = headlight.open('models/demo')\n"
         "model.measure('Alice was beginning to get very tired', probe=False)",
         "headlight.rank(model=model, by='weight')")


@unittest.skipIf(MISSING is not None, MISSING)
class Notebook(unittest.TestCase):
    def test_cells_show_pages(self):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
        os.environ["PYTHONPATH"] = os.path.join(ROOT, "python")
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3",
                                resources={"metadata": {"path": ROOT}}).execute()
        shown = [cell["outputs"][-1]["data"] for cell in notebook["cells"]]
        for data in shown[:2]:
            self.assertTrue(data["text/html"].startswith("<iframe srcdoc="))
            self.assertLess(len(data["text/html"]), 1 << 20)
            self.assertIn("<svg", data["image/svg+xml"])
        self.assertIn("<th>name</th>", shown[2]["text/html"])


if __name__ == "__main__":
    unittest.main()
