"""build_package.py - makes the wheel that `pip install .` installs, with the standard library only.

A wheel is a zip file: the package, libheadlight.so and libheadlight_cuda.so from build/ if `make` has
made them, and a folder of metadata with a hash of every file.  Without the library the wheel fits any
machine, and uses the libheadlight.so that `make install` installed.  pip calls the functions below by
name (PEP 517, PEP 660).
"""
import base64
import hashlib
import os
import pathlib
import re
import sysconfig
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
LIBRARIES = ("libheadlight.so", "libheadlight_cuda.so")


def version():
    """The library's version, from its header."""
    with open(os.path.join(ROOT, "include", "headlight", "base.h"), encoding="utf-8") as file:
        return ".".join(re.findall(r"^#define HL_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)$", file.read(), flags=re.M))


def package_files():
    """(name in the wheel, path) of every file of the package."""
    folder = os.path.join(HERE, "headlight")
    for name in sorted(os.listdir(folder)):
        if name.endswith((".py", ".typed")):
            yield "headlight/" + name, os.path.join(folder, name)


def built_libraries():
    for name in LIBRARIES:
        path = os.path.join(ROOT, "build", name)
        if os.path.exists(path):
            yield "headlight/" + name, path


def facts(tag):
    """(name, text) of the wheel's metadata files."""
    folder = f"headlight-{version()}.dist-info/"
    yield folder + "METADATA", (f"Metadata-Version: 2.1\nName: headlight\nVersion: {version()}\n"
                                "Summary: What every attention head of a transformer looks at, and "
                                "how sharply\nRequires-Python: >=3.9\nRequires-Dist: numpy\n")
    yield folder + "WHEEL", (f"Wheel-Version: 1.0\nGenerator: headlight\n"
                             f"Root-Is-Purelib: {str(tag.endswith('any')).lower()}\nTag: {tag}\n")


def write_wheel(folder, files, texts, tag):
    name = f"headlight-{version()}-{tag}.whl"
    record = []
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        contents = [(inside, pathlib.Path(path).read_bytes()) for inside, path in files]
        contents += [(inside, text.encode()) for inside, text in texts]
        for inside, data in contents:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{inside},sha256={digest},{len(data)}")
            wheel.writestr(inside, data)
        inside = f"headlight-{version()}.dist-info/RECORD"
        wheel.writestr(inside, "\n".join([*record, f"{inside},,", ""]))
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    libraries = list(built_libraries())
    platform = re.sub(r"[^0-9a-zA-Z_]", "_", sysconfig.get_platform())
    tag = f"py3-none-{platform if libraries else 'any'}"
    return write_wheel(wheel_directory, [*package_files(), *libraries], facts(tag), tag)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """For `pip install -e .`: a wheel with a path to this folder."""
    return write_wheel(wheel_directory, [], [("headlight.pth", HERE + "\n"),
                                             *facts("py3-none-any")], "py3-none-any")


def build_sdist(sdist_directory, config_settings=None):
    name = f"headlight-{version()}"
    path = os.path.join(sdist_directory, name + ".tar.gz")
    with tarfile.open(path, "w:gz") as out:
        for inside in ("pyproject.toml", "Makefile", "LICENSE", "python/README.md",
                       "python/build_package.py"):
            out.add(os.path.join(ROOT, inside), f"{name}/{inside}")
        for inside, file in package_files():
            out.add(file, f"{name}/python/{inside}")
    return os.path.basename(path)
