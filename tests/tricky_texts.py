"""Texts in five languages, and texts that tokenizers stumble over."""

from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.exporters.conformance import ODD_TEXTS as FRAGMENTS

__all__ = ["FRAGMENTS", "sample_sentences"]


def sample_sentences() -> list[str]:
    """The sentences of the built-in translations, in five languages."""
    files = [path.read_text("utf-8") for path in sorted((SAMPLE_FOLDER / "parallel").iterdir())]
    return [text for file in files for line in file.splitlines() for text in line.split("\t")[:2]]
