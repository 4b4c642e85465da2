"""pytest collects every `.test` file of this folder, one test a case; harness.py says what a case looks like."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golden.harness import GoldenMismatch, check, parse, run, update


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "GoldenFile | None":
    return GoldenFile.from_parent(parent, path=file_path) if file_path.suffix == ".test" else None


class GoldenFile(pytest.File):
    def collect(self) -> Iterator["GoldenItem"]:
        for index, case in enumerate(parse(self.path.read_text(encoding="utf-8"))):
            yield GoldenItem.from_parent(self, name=case.title.replace("\n", " ") or str(index), index=index)


class GoldenItem(pytest.Item):
    def __init__(self, index: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.index = index

    def runtest(self) -> None:
        if not self.config.getoption("update_golden"):
            check(self.path, self.index, run)
        elif hasattr(self.config, "workerinput"):
            pytest.fail("--update-golden writes files: use it without -n", pytrace=False)
        else:
            update(self.path, self.index, run)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if excinfo.errisinstance(GoldenMismatch) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name
