"""Builds peerage._native: the static library by native/Makefile, which owns the list
of sources and how they are compiled, and on top of it the few files of the binding.

Why not list the sources here as well: Python's own compiler flags carry -DNDEBUG, which
would silence the asserts of the core, and two lists of sources grow apart.

PEERAGE_BUILD=dir keeps the native objects for the next build (the scripts do);
PEERAGE_WERROR=1 makes warnings errors (our checks do, installations never).
"""

import glob
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, PlatformError

ROOT = Path(__file__).resolve().parent
STRICT = os.environ.get("PEERAGE_WERROR", "") not in ("", "0")


def files(*patterns):
    """Paths relative to the root, as setuptools wants them for an sdist."""
    return sorted(
        os.path.relpath(path, ROOT) for p in patterns for path in glob.glob(str(ROOT / p))
    )


class BuildNative(build_ext):
    def build_extension(self, extension):
        folder = os.environ.get("PEERAGE_BUILD") or os.path.join(self.build_temp, "native")
        folder = os.path.abspath(folder)
        make = ["BUILD=" + folder] + (["WERROR=-Werror"] if STRICT else [])
        self.make(f"-j{min(os.cpu_count() or 1, 8)}", "libpeerage.a", *make)
        library = os.path.join(folder, "libpeerage.a")
        extension.extra_objects = [library]
        extension.depends = [*extension.depends, library]
        extension.extra_compile_args += self.make("-s", "print-cflags", *make).split()
        extension.extra_link_args += self.make("-s", "print-libs", *make).split()
        super().build_extension(extension)

    def make(self, *arguments):
        tool = shutil.which("gmake") or shutil.which("make")
        if tool is None:
            raise PlatformError("peerage: missing make (Debian package make)")
        command = [tool, "--no-print-directory", "-C", str(ROOT / "native"), *arguments]
        try:
            done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
        except subprocess.CalledProcessError as error:
            # make has said on stderr what is missing or wrong
            raise CompileError("peerage: " + " ".join(command) + " failed") from error
        if "-s" not in arguments:
            sys.stdout.write(done.stdout)
        return done.stdout


include = sysconfig.get_path("include")
native = Extension(
    "peerage._native",
    sources=files("native/binding/*.c"),
    depends=files("native/binding/*.h", "native/include/*.h", "native/core/*.h", "native/shell/*.h"),
    include_dirs=["native", "native/include"],
    # Python's headers as system headers: our warnings are for our own code.
    extra_compile_args=["-isystem", include, "-std=c11", "-D_GNU_SOURCE", "-UNDEBUG"]
    + ["-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Wconversion", "-Wshadow"]
    + (["-Werror"] if STRICT else []),
    # Only PyInit__native is for others to see: the functions of the public header are
    # visible in the library, and must not be taken for those of a libpeerage.so that
    # the same process may have loaded.
    extra_link_args=["-pthread"]
    + (
        ["-Wl,-exported_symbol,_PyInit__native"]
        if sys.platform == "darwin"
        else ["-Wl,--exclude-libs,ALL"]
    ),
)

setup(ext_modules=[native], cmdclass={"build_ext": BuildNative})
