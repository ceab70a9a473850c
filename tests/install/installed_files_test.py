"""Built and installed files: where the loader looks for libraries, man pages, completions, what belongs together.

    installed_files_test.py CMAKE BUILD_FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
CUDA_MODULE = "libcpprun_worker_cuda.so"


def programs_and_libraries(folder):
    """The ELF files that can be run or loaded, so no objects and no archives."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as file:
            head = file.read(18)
        if head[:4] == b"\x7fELF" and head[16] in (2, 3):  # e_type: ET_EXEC, ET_DYN
            yield path


def run_path(file):
    """The entries of the file's run path, in their order."""
    listing = subprocess.run(["readelf", "-d", file], env={**os.environ, "LC_ALL": "C"}, capture_output=True,
                             text=True, check=True).stdout
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", listing)
    return [entry for path in paths for entry in path.split(":")]


class BuiltAndInstalled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="cpprun-install-test-")
        cls.addClassCleanup(scratch.cleanup)
        cls.prefix = pathlib.Path(scratch.name)
        done = subprocess.run([CMAKE, "--install", BUILD, "--prefix", cls.prefix], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def check_run_paths(self, files):
        for file in files:
            entries = run_path(file)
            with self.subTest(file=str(file), entries=entries):
                # An empty entry is the current folder, from which anybody's library would be loaded.
                self.assertEqual([entry for entry in entries if not entry.startswith("/")], [])
                self.assertEqual(len(entries), len(set(entries)))

    def test_libraries_are_looked_for_in_absolute_folders_only(self):
        built = [file for folder in ("bin", "lib", "tests") for file in programs_and_libraries(BUILD / folder)]
        installed = list(programs_and_libraries(self.prefix))
        self.assertIn(BUILD / "bin/cpprun", built)
        self.assertIn(self.prefix / "bin/cpprun", installed)
        self.check_run_paths(built + installed)

    def test_installed_files_find_their_libraries(self):
        for file in programs_and_libraries(self.prefix):
            listing = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
            self.assertNotIn("not found", listing, file)

    def test_programs_run_where_they_are_installed(self):
        for file in sorted((self.prefix / "bin").iterdir()):
            done = subprocess.run([file, "--version"], cwd=self.prefix, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), file)
            self.assertIn(file.name, done.stdout)

    def test_every_program_has_a_man_page_in_its_section(self):
        manual = self.prefix / "share/man"
        pages = [str(page.relative_to(manual)) for page in manual.rglob("*") if page.is_file()]
        programs = [file.name for file in (self.prefix / "bin").iterdir()]
        sections = {name: 8 if name == "cpprund" else 1 for name in programs}
        self.assertCountEqual(pages, [f"man{number}/{name}.{number}" for name, number in sections.items()])

    def test_workers_can_use_what_is_installed_for_them(self):
        """The headers compile by themselves, and a worker of the installed cpprun finds the Python module."""
        for language, header in (("c", "cpprun_progress.h"), ("c++", "cpprun_progress.hpp")):
            done = subprocess.run(["g++", "-x", language, "-I", self.prefix / "include", "-Wall", "-Werror", "-fsyntax-only", "-"],
                                  input=f"#include <cpprun/{header}>\nint main() {{ return !cpprun_progress_open(); }}\n",
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = subprocess.run([self.prefix / "bin/cpprun", "--no-python", sys.executable, "-c",
                               "import cpprun_progress; print(cpprun_progress.__file__)"], capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), str(self.prefix / "share/cpprun/python/cpprun_progress.py"), done.stderr)

    def test_units_of_systemd_name_the_installed_program(self):
        units = self.prefix / "lib/systemd/system"
        started = re.search(r"^ExecStart=(\S+)", (units / "cpprund.service").read_text(), re.M)[1]
        self.assertEqual(pathlib.Path(started), self.prefix / "bin/cpprund")
        self.assertTrue((units / "cpprund.socket").exists())

    def test_the_trainer_comes_with_its_cuda_module(self):
        if not (BUILD / "build.ninja").exists() or not (BUILD / "lib" / CUDA_MODULE).exists():
            self.skipTest("no Ninja build with CUDA")
        inputs = subprocess.run(["ninja", "-C", BUILD, "-t", "inputs", "cpprun-train"], capture_output=True, text=True,
                                check=True).stdout
        self.assertIn(f"lib/{CUDA_MODULE}", inputs.split())
        self.assertTrue((self.prefix / "lib" / CUDA_MODULE).exists())


if __name__ == "__main__":
    unittest.main()
