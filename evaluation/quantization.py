"""Measures what vectors in fewer bytes find of what the whole ones find, and their size.

    python evaluation/quantization.py --model exported/en-es --data DIR --corpus tatoeba

Queries are source sentences, searched among the corpus' distinct translations. For each way to store
the vectors it tells the share of the float vectors' ten nearest that is found (recall), how often the first
hit is a translation of the query, the bytes of a vector and the time of a query.
"""

import dataclasses
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from absl import app, flags
from numpy.typing import NDArray

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError, one_line_errors, parse_flags, set_up_logging
from xling_tf.files import provenance, replacing
from xling_tf.search.arrays import truncated
from xling_tf.search.quantization import Int8Ranges, Precision, quantize
from xling_tf.search.search import Hit, quantized_search, semantic_search
from xling_tf.sentence_encoder import SentenceEncoder

_MODEL = flags.DEFINE_multi_string("model", None, "Exported model. Repeatable.", required=True)
_DATA = flags.DEFINE_string("data", None, "Folder of corpora.", required=True)
_CORPUS = flags.DEFINE_string("corpus", "tatoeba", "Translations of this name.")
_SOURCE = flags.DEFINE_string("source", "en", "Language of the queries.")
_TARGET = flags.DEFINE_string("target", "es", "Language that is searched.")
_SENTENCES = flags.DEFINE_integer("sentences", 100_000, "Searched, at most.", lower_bound=100)
_QUERIES = flags.DEFINE_integer("queries", 1000, "Queries, at most.", lower_bound=1)
_OUTPUT = flags.DEFINE_string(
    "output", "evaluation/results/quantization.json", "Where the figures are written."
)
_TOP_K = 10
_CALIBRATED_WITH = 10_000  # vectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Way:
    """A way to store and search vectors.

    Attributes:
        precision: Of what is searched.
        dim: Dimensions kept; None: all.
        calibrated: Whether int8 numbers have ranges of their own in each dimension.
        oversampling: Candidates that are scored again, for each hit.
        rescore_with: What they are scored by besides what is searched.
    """

    precision: Precision
    dim: int | None = None
    calibrated: bool = False
    oversampling: int = 1
    rescore_with: Precision | None = None

    def search(
        self, queries: NDArray[Any], corpus: NDArray[Any]
    ) -> tuple[dict[str, Any], list[list[Hit]]]:
        """Gives the sizes and the time, and the hits."""
        if self.dim:
            queries, corpus = truncated(queries, self.dim), truncated(corpus, self.dim)
        ranges = Int8Ranges.calibrated(corpus[:_CALIBRATED_WITH]) if self.calibrated else None
        codes = quantize(corpus, self.precision, ranges=ranges)
        again = quantize(corpus, self.rescore_with) if self.rescore_with else None
        begin = time.perf_counter()
        if self.precision == "float32":
            hits = semantic_search(queries, codes, _TOP_K)
        else:
            hits = quantized_search(
                queries,
                codes,
                self.precision,
                _TOP_K,
                ranges=ranges,
                oversampling=self.oversampling,
                rescore_with=again,
            )
        seconds = time.perf_counter() - begin
        figures = {
            "bytes_per_vector": codes[0].nbytes,
            "rescoring_bytes_per_vector": 0 if again is None else again[0].nbytes,
            "corpus_mib": round(codes.nbytes / 2**20, 1),
            "milliseconds_per_query": round(1000 * seconds / len(queries), 2),
        }
        return figures, hits


_WAYS = (
    _Way(precision="float32"),
    *(_Way(precision="float32", dim=dim) for dim in (256, 128, 64)),
    _Way(precision="int8"),
    _Way(precision="int8", calibrated=True),
    *(_Way(precision="int8", dim=dim) for dim in (256, 128)),
    *(_Way(precision="ubinary", oversampling=times) for times in (1, 4, 10)),
    *(
        _Way(precision="ubinary", oversampling=times, rescore_with=kind)
        for kind in ("int8", "float32")
        for times in (4, 10)
    ),
    _Way(precision="ubinary", dim=256, oversampling=10),
)


class _Texts(NamedTuple):
    """What is searched for and in.

    Attributes:
        queries: Source sentences.
        corpus: Target sentences, each once.
        right: For each query the places of its translations.
    """

    queries: list[str]
    corpus: list[str]
    right: list[set[int]]


def main(argv: list[str]) -> None:
    """Measures the models that the flags name and writes the figures."""
    del argv
    set_up_logging()
    with one_line_errors("the same command starts anew"):
        texts = _read()
        models = {Path(model).name: _measure(Path(model), texts) for model in _MODEL.value}
        figures = {
            "corpus": f"{_CORPUS.value}.{_SOURCE.value}-{_TARGET.value}",
            "sentences": len(texts.corpus),
            "queries": len(texts.queries),
            "models": models,
            **provenance(),
        }
        path = Path(_OUTPUT.value)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _read() -> _Texts:
    found = load_folder(Path(_DATA.value), source=_SOURCE.value, targets=[_TARGET.value])
    corpora = [c for c in found if c.kind == "parallel" and c.name == _CORPUS.value]
    if not corpora:
        names = ", ".join(c.name for c in found if c.kind == "parallel")
        raise UserError(f"--corpus must be one of {names}, got {_CORPUS.value!r}")
    pairs = [record for record, _ in corpora[0] if isinstance(record, TranslationPair)]
    np.random.default_rng(0).shuffle(pairs)
    places: dict[str, int] = {}
    right = defaultdict(set)
    for pair in pairs:
        if pair.target in places or len(places) < _SENTENCES.value:
            right[pair.source].add(places.setdefault(pair.target, len(places)))
    queries = list(right)[: _QUERIES.value]
    return _Texts(queries, list(places), [right[query] for query in queries])


def _measure(model: Path, texts: _Texts) -> list[dict[str, Any]]:
    encoder = SentenceEncoder.load(model)
    print(f"{model.name}: {len(texts.queries)} queries among {len(texts.corpus)} sentences")
    queries, corpus = encoder.encode(texts.queries), encoder.encode(texts.corpus)
    exact = semantic_search(queries, corpus, _TOP_K)
    rows = []
    for way in (way for way in _WAYS if (way.dim or 0) < encoder.dim):
        size, hits = way.search(queries, corpus)
        how = {**dataclasses.asdict(way), "dim": way.dim or encoder.dim}
        rows.append({**how, **size, **_scores(hits, exact, texts.right)})
        print(" ".join(f"{name}={value}" for name, value in rows[-1].items()))
    return rows


def _scores(
    hits: list[list[Hit]], exact: list[list[Hit]], right: list[set[int]]
) -> dict[str, float]:
    pairs = zip(map(_places, hits), map(_places, exact), strict=True)
    recalls = [len(set(some) & set(others)) / len(others) for some, others in pairs]
    firsts = [row[0]["corpus_id"] in wanted for row, wanted in zip(hits, right, strict=True)]
    return {
        f"recall_at_{_TOP_K}": round(float(np.mean(recalls)), 4),
        "translation_at_1": round(float(np.mean(firsts)), 4),
    }


def _places(hits: list[Hit]) -> list[int]:
    return [hit["corpus_id"] for hit in hits]


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
