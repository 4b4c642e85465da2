"""The repository -> a wheel: the package, and the benchmarks inside of it, which `tenon bench` runs from there."""

from pathlib import Path
from shutil import copy

from setuptools import setup
from setuptools.command.build_py import build_py


class WithBenchmarks(build_py):
    """An editable installation finds them in the repository."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, "tenon", "benchmarks")
            folder.mkdir(exist_ok=True)
            for file in Path("benchmarks").glob("*.py"):
                copy(file, folder)


setup(cmdclass={"build_py": WithBenchmarks})
