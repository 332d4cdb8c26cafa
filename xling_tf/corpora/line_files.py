"""Writing corpus files: lines of text, the same bytes every time."""

import gzip
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from xling_tf.files import replacing


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines whole or not at all, packed where the file's name ends in .gz.

    Args:
        path: Its folder is made where there is none.
        lines: Without their ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file: IO[bytes] | gzip.GzipFile
        file = stack.enter_context(stack.enter_context(replacing(path)).open("wb"))
        if path.suffix == ".gz":
            # Neither the time nor the temporary name.
            file = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            stack.enter_context(file)
        file.writelines(f"{line}\n".encode() for line in lines)
