"""build_package.py - makes the wheel and the source distribution, with the standard library only.

A wheel is a zip file: the package, the library, the command, the libraries that these need, and a
folder of metadata with a hash of every file.  It stands alone where it was built by

    make wheel          build/wheel/headlight-VERSION-py3-none-manylinux_2_36_x86_64.whl

which links with a search path that begins in the wheel's own folder, and copies into it every library
but glibc's.  `pip install .` packs what `make` has built, and runs `make` if nothing has been built and
the C sources are there, as in the source distribution; without them, the package uses the
libheadlight.so that `make install` installed.  pip calls the functions below by name (PEP 517, PEP 660).
"""
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.environ.get("HEADLIGHT_BUILD", os.path.join(ROOT, "build"))
LIBRARIES = ("libheadlight.so", "libheadlight_cuda.so")
# Part of glibc, or found by it: every system has its own.
SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nsl|anl)\.so.*|linux-vdso.*)$")
SUMMARY = "What every attention head of a transformer looks at, and how sharply"
SOURCES = ("include", "src", "cli", "web/dist", "models/demo", "tools", "packaging", "doc/man")


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


def make_if_needed():
    """Builds the library from the sources of a source distribution."""
    if os.path.exists(os.path.join(BUILD, LIBRARIES[0])) or not os.path.isdir(os.path.join(ROOT, "src")):
        return
    if shutil.which("make") is None or shutil.which("cc") is None:
        raise SystemExit("headlight: building from source needs make, a C compiler and the libraries of "
                         "README.md; or install a wheel")
    subprocess.run(["make", f"-j{os.cpu_count() or 1}", "all", "WHEEL=1"], cwd=ROOT, check=True)


def built_libraries():
    for name in LIBRARIES:
        path = os.path.join(BUILD, name)
        if os.path.exists(path):
            yield "headlight/" + name, path
    command = os.path.join(BUILD, "headlight")
    if os.path.exists(command) and os.path.exists(os.path.join(BUILD, LIBRARIES[0])):
        yield "headlight/headlight-command", command


def stands_alone(library):
    """Whether the library was linked to search the wheel's own folder."""
    with open(library, "rb") as file:
        return b"$ORIGIN/libs" in file.read()


def needed_libraries(paths):
    """(name in the wheel, path) of all libraries that these need, but those of the system and our own."""
    found = {}
    for path in paths:
        shown = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for line in shown.splitlines():
            match = re.match(r"\s*(\S+) => (/\S+)", line)
            if "not found" in line:
                raise SystemExit(f"headlight: {path}: {line.strip()}")
            if match and not SYSTEM.match(match[1]) and not match[1].startswith("libheadlight"):
                found[match[1]] = match[2]
    return [("headlight/libs/" + name, os.path.realpath(path)) for name, path in sorted(found.items())]


FONTS_CONF = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir prefix="relative">.</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


def fonts():
    """(name in the wheel, path) of the fonts that figures are drawn with, for systems without any; none
    if the build machine has no others than these."""
    found = []
    for style in ("", ":bold"):
        shown = subprocess.run(["fc-match", "-f", "%{file}", "Liberation Sans" + style],
                               capture_output=True, text=True, check=False) if shutil.which("fc-match") else None
        if shown is not None and "Liberation" in shown.stdout:
            found.append(("headlight/fonts/" + os.path.basename(shown.stdout), shown.stdout))
    terms = "/usr/share/doc/fonts-liberation/copyright"
    if found and os.path.exists(terms):
        found.append(("headlight/fonts/LICENSE", terms))
    return found


def wheel_tag(libraries, alone):
    if not libraries:
        return "py3-none-any"
    machine = re.sub(r"[^0-9a-zA-Z_]", "_", platform.machine())
    libc = platform.libc_ver()
    if alone and libc[0] == "glibc":
        return f"py3-none-manylinux_{libc[1].replace('.', '_')}_{machine}"
    return "py3-none-" + re.sub(r"[^0-9a-zA-Z_]", "_", sysconfig.get_platform())


def metadata():
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    return "\n".join([
        "Metadata-Version: 2.1", "Name: headlight", f"Version: {version()}", f"Summary: {SUMMARY}",
        "License: MIT",
        "Keywords: attention,entropy,transformers,interpretability,pruning",
        "Classifier: Development Status :: 4 - Beta", "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: 3", "Classifier: Programming Language :: C",
        "Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Classifier: Typing :: Typed", "Requires-Python: >=3.9", "Requires-Dist: numpy",
        "Provides-Extra: torch", "Requires-Dist: torch>=2.4; extra == 'torch'",
        "Provides-Extra: transformers",
        "Requires-Dist: torch>=2.4; extra == 'transformers'",
        "Requires-Dist: transformers>=4.53; extra == 'transformers'",
        "Provides-Extra: tables", "Requires-Dist: pandas; extra == 'tables'",
        "Requires-Dist: xarray; extra == 'tables'",
        "Description-Content-Type: text/markdown", "", readme])


def license_text():
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
        return file.read()


def facts(tag):
    """(name, text) of the wheel's metadata files."""
    folder = f"headlight-{version()}.dist-info/"
    yield folder + "METADATA", metadata()
    yield folder + "WHEEL", (f"Wheel-Version: 1.0\nGenerator: headlight\n"
                             f"Root-Is-Purelib: {str(tag.endswith('any')).lower()}\nTag: {tag}\n")
    yield folder + "entry_points.txt", "[console_scripts]\nheadlight = headlight.__main__:main\n"
    yield folder + "LICENSE", license_text()


def write_wheel(folder, files, texts, tag):
    name = f"headlight-{version()}-{tag}.whl"
    record = []
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        contents = [(inside, pathlib.Path(path).read_bytes()) for inside, path in files]
        contents += [(inside, text.encode()) for inside, text in texts]
        for inside, data in contents:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{inside},sha256={digest},{len(data)}")
            info = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
            info.external_attr = (0o100755 if inside.endswith("-command") else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(info, data)
        inside = f"headlight-{version()}.dist-info/RECORD"
        wheel.writestr(inside, "\n".join([*record, f"{inside},,", ""]))
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    make_if_needed()
    libraries = list(built_libraries())
    alone = bool(libraries) and stands_alone(libraries[0][1])
    needed = [*needed_libraries([path for _, path in libraries]), *fonts()] if alone else []
    tag = wheel_tag(libraries, alone)
    texts = [*facts(tag), *([("headlight/fonts/fonts.conf", FONTS_CONF)] if needed else [])]
    return write_wheel(wheel_directory, [*package_files(), *libraries, *needed], texts, tag)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """For `pip install -e .`: a wheel with a path to this folder."""
    return write_wheel(wheel_directory, [], [("headlight.pth", HERE + "\n"),
                                             *facts("py3-none-any")], "py3-none-any")


def build_sdist(sdist_directory, config_settings=None):
    """The package, and all that `make all` needs."""
    name = f"headlight-{version()}"
    path = os.path.join(sdist_directory, name + ".tar.gz")
    with tarfile.open(path, "w:gz") as out:
        for inside in ("pyproject.toml", "Makefile", "LICENSE", "README.md", "CHANGELOG.md", "headlight.pc.in",
                       "python/README.md", "python/build_package.py"):
            out.add(os.path.join(ROOT, inside), f"{name}/{inside}")
        for inside, file in package_files():
            out.add(file, f"{name}/python/{inside}")
        for inside in SOURCES:
            if os.path.exists(os.path.join(ROOT, inside)):
                out.add(os.path.join(ROOT, inside), f"{name}/{inside}",
                        filter=lambda one: None if "__pycache__" in one.name else one)
    return os.path.basename(path)


if __name__ == "__main__":  # make wheel: FOLDER, or --sdist FOLDER
    import sys
    if sys.argv[1:2] == ["--sdist"]:
        os.makedirs(sys.argv[2], exist_ok=True)
        print(build_sdist(sys.argv[2]))
    else:
        print(build_wheel(sys.argv[1] if len(sys.argv) > 1 else BUILD))
