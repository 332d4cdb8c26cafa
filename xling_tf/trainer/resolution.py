"""The decisions that a run makes once, from its config, data and machine."""

import dataclasses
import timeit
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.config import (
    DTYPE_POLICIES,
    TOKENIZERS,
    WORD_VECTORS,
    DataConfig,
    ExperimentConfig,
    ModelInfo,
)
from xling_tf.corpora.store import CorpusStore, StoredRecords, join
from xling_tf.encoders.base import WordVectors, encoder_settings
from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.model import read_config
from xling_tf.settings import from_mapping, kind_to_dict

# bfloat16 is about twice as fast as float32 where the hardware supports it, and slower where it is
# emulated. A smaller gain is not worth the lost precision.
_MIN_SPEEDUP = 1.2
# Budget, in floating-point operations of matrix products, above which three layers are better than
# one. At 650e12, an hour on a core with bfloat16 hardware, one is as good
# (docs/research/experiments.md, "Quality against minutes").
_FOR_THREE_LAYERS = 1000e12
# In the run folder: the model that training starts from, and the word vectors.
START, VECTORS = "start", "vectors.npz"


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The decisions of a run."""

    precision: str  # "float32" or "mixed_bfloat16"
    # What `Model.from_config` takes, with the heads that training starts from.
    model: Mapping[str, Any]
    files: Mapping[str, bytes]  # contents of the tokenizer's files by name


def resolve(
    config: ExperimentConfig, data: DataConfig, store: CorpusStore, run_dir: Path
) -> Resolved:
    """Decides on tokenizer, sizes and precision. A model to start from is in the run folder."""
    precision, num_layers = fit_to_machine(config)
    info = ModelInfo(
        description=config.description, languages=data.languages, similarity=config.similarity
    )
    if config.initial.model:
        model = read_config(run_dir / START)
        names = TOKENIZERS.implementation(model["tokenizer"]["kind"]).file_names
        files = {name: (run_dir / START / name).read_bytes() for name in names}
        start = from_mapping(ModelInfo, model["info"])
        # Pairs whose languages are not named are in "source" and "target".
        added = (code for code in data.languages if code not in ("source", "target"))
        languages = tuple(dict.fromkeys((*start.languages, *added)))
        prompts, name = start.prompts, start.default_prompt_name
        info = dataclasses.replace(
            info, languages=languages, prompts=prompts, default_prompt_name=name
        )
        model["info"] = dataclasses.asdict(info)
    else:
        decided: dict[str, Any] = {} if num_layers is None else {"num_layers": num_layers}
        tokenizer_class = TOKENIZERS.implementation_of(config.tokenizer)
        if config.initial.vectors:
            vectors = _fit_vectors(config, store, run_dir)
            tokenizer = tokenizer_class(vectors.words, config.tokenizer)
            decided["space_dims"] = vectors.dims
        else:
            tokenizer = tokenizer_class.fit(config.tokenizer, store.training_texts_by_language())
        model = {
            "info": dataclasses.asdict(info),
            "tokenizer": kind_to_dict(TOKENIZERS, tokenizer.config),
            "encoder": encoder_settings(config.encoder, tokenizer, **decided),
            "heads": {},
        }
        files = tokenizer.files()
    return Resolved(precision=precision, model=model, files=files)


def _fit_vectors(config: ExperimentConfig, store: CorpusStore, run_dir: Path) -> WordVectors:
    """Makes the word vectors, and saves them in the run folder."""
    parts = defaultdict[str, list[StoredRecords]](list)
    for corpus in store.corpora:
        if corpus.record_type == "parallel" and len(corpus.train):
            parts[corpus.languages].append(corpus.train)
    if not parts:
        raise UserError(
            "initial.vectors needs translations, which tell the language of each word, but there "
            "are none; add parallel/<name>.<pair>.tsv to the data folder"
        )
    translations = {languages: join(part) for languages, part in parts.items()}
    vectors: WordVectors = resolve_name(WORD_VECTORS)(
        translations, config.initial.vectors, config.tokenizer, config.training.seed
    )
    width, expected = sum(vectors.dims), getattr(config.encoder, "embedding_dim", None)
    if expected not in (None, width):
        raise UserError(
            f"initial.vectors must be as wide as encoder.embedding_dim, {expected}, got {width}; "
            "change one of them"
        )
    with replacing(run_dir / VECTORS) as path, path.open("wb") as file:
        np.savez(file, rows=vectors.rows, is_known=vectors.is_known)
    return vectors


def fit_to_machine(config: ExperimentConfig) -> tuple[str, int | None]:
    """Returns the precision, and this machine's number of layers (None if configured)."""
    training, precision = config.training, config.training.precision
    is_deep_enough = getattr(config.encoder, "num_layers", 1) is not None
    if precision != "auto" and is_deep_enough:
        return precision, None
    float32, bfloat16 = (matmul_gflops(dtype) for dtype in ("float32", "bfloat16"))
    if precision == "auto":
        precision = DTYPE_POLICIES[bfloat16 > _MIN_SPEEDUP * float32]
    num_layers = None
    if not is_deep_enough:
        # In a few minutes, one layer learns as much as three, and afterwards it encodes three times
        # as fast.
        operations = 60e9 * training.minutes * (float32 if precision == "float32" else bfloat16)
        num_layers = 1 if 0 < operations < _FOR_THREE_LAYERS else 3
    layers = f", encoder.num_layers {num_layers}" if num_layers else ""
    logging.info(
        "this machine multiplies matrices at %.0f GFLOP/s in float32, %.0f in bfloat16: precision "
        "%s%s",
        float32,
        bfloat16,
        precision,
        layers,
    )
    return precision, num_layers


def matmul_gflops(dtype: str) -> float:
    """Returns the speed of matrix products in 10^9 operations per second."""
    rows, inner, columns = 4096, 512, 2048  # a batch in the feed-forward layer of the paper
    left, right = tf.ones([rows, inner], dtype), tf.ones([inner, columns], dtype)
    # A GPU needs less time for one product than the call of a function takes.
    count = 100 if tf.config.list_logical_devices("GPU") else 1

    @tf.function(autograph=False)
    def product() -> tf.Tensor:
        def add(number: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return number + 1, total + tf.matmul(left, right)[0, 0]

        return tf.while_loop(lambda number, _: number < count, add, (0, tf.zeros([], dtype)))[1]

    product()
    seconds = min(timeit.repeat(lambda: product().numpy(), number=1, repeat=5))
    return 2 * count * rows * inner * columns / seconds / 1e9
