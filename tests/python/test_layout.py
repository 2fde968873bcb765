"""test_layout.py - Python's structs, constants and signatures against headlight.h.

A C program made from them prints every size, offset and constant that the compiler uses; prototypes are
read from the header's text.
"""
import ctypes
import glob
import os
import re
import shlex
import subprocess
import tempfile
import unittest

from headlight import _library, _structs
from support import ROOT


def compiled(lines):
    """The output of a program whose main has these lines."""
    source = ("#include <stddef.h>\n#include <stdio.h>\n#include \"headlight.h\"\n"
              "#include \"kernels/cuda/headlight_cuda.h\"\nint main(void)\n{\n" +
              "\n".join(lines) + "\n    return 0;\n}\n")
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/layout.c", "w") as file:
            file.write(source)
        compiler = shlex.split(os.environ.get("CC", "gcc"))
        subprocess.run([*compiler, "-std=c17", "-I" + ROOT + "/include", "-I" + ROOT + "/src",
                        "-o", folder + "/layout", folder + "/layout.c"], check=True)
        return subprocess.run([folder + "/layout"], capture_output=True, check=True,
                              text=True).stdout


def header_text():
    text = ""
    for path in [*sorted(glob.glob(ROOT + "/include/headlight/*.h")),
                 ROOT + "/src/kernels/cuda/headlight_cuda.h"]:
        with open(path) as file:
            text += file.read()
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


SCALARS = {"void": None, "int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "int": ctypes.c_int,
           "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "double": ctypes.c_double,
           "float": ctypes.c_float, "bool": ctypes.c_bool}


def c_class(declaration, enums):
    """How C passes an argument: "pointer", a scalar of ctypes, or the name of a struct."""
    if "*" in declaration or "[" in declaration:
        return "pointer"
    name = re.sub(r"\b(const|struct|enum)\b", " ", declaration).split()[0]
    if name in SCALARS:
        return SCALARS[name]
    return ctypes.c_int if name in enums else name


def python_class(kind):
    if kind is None:
        return None
    if kind in (ctypes.c_char_p, ctypes.c_void_p) or issubclass(kind, ctypes._Pointer):
        return "pointer"
    return kind.c_name if issubclass(kind, ctypes.Structure) else kind


class Layout(unittest.TestCase):
    def test_structs_are_as_in_c(self):
        lines, wanted = [], []
        for kind in _structs.STRUCTS:
            name = kind.c_name
            lines.append(f'    printf("{name} %zu\\n", sizeof({name}));')
            wanted.append(f"{name} {ctypes.sizeof(kind)}")
            for field, _ in kind._fields_:
                place = getattr(kind, field)
                lines.append(f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                             f"sizeof((({name} *)0)->{field}));")
                wanted.append(f"{name}.{field} {place.offset} {place.size}")
        self.assertGreater(len(_structs.STRUCTS), 25)
        self.assertEqual(compiled(lines).split("\n")[:-1], wanted)

    def test_constants_are_as_in_c(self):
        lines = [f'    printf("{name} %d\\n", (int){name});' for name in _structs.CONSTANTS]
        wanted = [f"{name} {value}" for name, value in _structs.CONSTANTS.items()]
        self.assertEqual(compiled(lines).split("\n")[:-1], wanted)

    def test_signatures_are_as_in_c(self):
        text = header_text()
        enums = set(re.findall(r"typedef enum (hl_\w+)", text))
        found = {}
        for result, name, arguments in re.findall(r"HL_API\s+([^;(]*?)(hl_\w+)\(([^;]*?)\);", text):
            taken = [] if arguments.strip() == "void" else arguments.split(",")
            found[name] = (c_class(result, enums), [c_class(a, enums) for a in taken])
        for name, (result, arguments) in {**_library.SIGNATURES,
                                          **_library.CUDA_SIGNATURES}.items():
            ours = (python_class(result), [python_class(kind) for kind in arguments])
            self.assertEqual(ours, found.get(name), name)


class Finding(unittest.TestCase):
    def test_a_missing_library_is_named(self):
        with self.assertRaises(_library.Error) as caught:
            os.environ["HEADLIGHT_NO_SUCH"] = "/nowhere/libheadlight.so"
            try:
                _library._load("libheadlight.so", "HEADLIGHT_NO_SUCH", "libheadlight.so.0")
            finally:
                del os.environ["HEADLIGHT_NO_SUCH"]
        self.assertEqual(caught.exception.status, "not found")
        self.assertIn("/nowhere/libheadlight.so: no such file", str(caught.exception))
        self.assertIn("HEADLIGHT_NO_SUCH=FILE names it", str(caught.exception))

    def test_all_places_are_named(self):
        with self.assertRaises(_library.Error) as caught:
            _library._load("libheadlight_none.so", "HEADLIGHT_NO_SUCH", "libheadlight_none.so.0")
        for place in ("python/headlight/libheadlight_none.so", "build/libheadlight_none.so",
                      "libheadlight_none.so.0"):
            self.assertIn(place, str(caught.exception))

    def test_importing_imports_neither_torch_nor_the_library(self):
        code = ("import sys, headlight; from headlight import _library; "
                "assert _library.library.cache_info().currsize == 0; "
                "assert not {'torch', 'transformers', 'pandas', 'xarray'} & set(sys.modules)")
        subprocess.run([os.sys.executable, "-B", "-c", code], check=True,
                       env={**os.environ, "PYTHONPATH": ROOT + "/python"})
