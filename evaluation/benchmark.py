"""Measures speed, memory and the size of vectors on this machine.

    python evaluation/benchmark.py training --preset en-es --data DIR      # and the machine's own limit
    python evaluation/benchmark.py peers --data DIR                      # and other libraries: make peers
    python evaluation/benchmark.py imported --model exported/minilm --peer FOLDER --texts FILE   # make peers
    python evaluation/benchmark.py system --model exported/en-es         # by sentence length and batch size
    python evaluation/benchmark.py runtimes --model exported/en-es --litert DIR --onnx DIR --texts FILE
    python evaluation/benchmark.py vectors --model exported/en-es --data DIR   # search in fewer bytes
    python evaluation/benchmark.py mining --model exported/en-es-static --data DIR --texts held_out.en-es.tsv

`system` adds the suite `resources` to the model's results in `runs/evaluation`, where evaluation/report.py
finds it; the others write figures to `--output`.
"""

import importlib.metadata
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).resolve().parents[1]
# Works in a checkout without installation.
sys.path.insert(0, str(ROOT))

import numpy as np
from absl import flags
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xling_tf.corpora.folder import SAMPLE_FOLDER, load_folder
from xling_tf.corpora.line_files import read_every_line
from xling_tf.corpora.readers import read_parallel
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError, library
from xling_tf.evaluators.data import Dataset
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.evaluators.encoding import Encode, as_embedder, encode_checked
from xling_tf.evaluators.running import evaluate_embedder
from xling_tf.files import read_json, require_writable_file, require_writable_folder, write_json
from xling_tf.presets import get_preset
from xling_tf.program import provenance, quiet_start, run
from xling_tf.search.neighbours import nearest, truncated, unit_vectors
from xling_tf.sentence_encoder import SentenceEncoder

_WARM_UP_STEPS = 5
_OTHER_TASKS = (
    *("response_prediction", "quick_thought", "inference", "question_answering", "distillation"),
    *("entailment_ranking", "graded_similarity"),
)
_MAX_TEXTS = 10_000
_MIB = 2**20


def main(*arguments: str) -> None:
    """Runs the benchmark that the first argument names."""
    benchmarks = {
        benchmark.__name__[1:]: benchmark
        for benchmark in (_training, _peers, _imported, _system, _runtimes, _vectors, _mining)
    }
    if len(arguments) != 1 or arguments[0] not in benchmarks:
        raise UserError(f"expected one of {', '.join(benchmarks)}, got {' '.join(arguments) or 'none'}")
    if flags.FLAGS.output:
        require_writable_file(Path(flags.FLAGS.output), "give another --output")
    benchmarks[arguments[0]]()


def _write(default: str, figures: Mapping[str, Any]) -> None:
    figures = {**provenance(), **figures}
    write_json(Path(flags.FLAGS.output or f"evaluation/results/{default}"), figures)
    print(json.dumps(figures, indent=2))


# Training and encoding, compared with the machine's matrix products.


def _training() -> None:
    """Trains a preset on translation ranking alone, and encodes with what is exported."""
    from xling_tf.model import Model
    from xling_tf.trainer.resolution import matmul_gflops

    pairs = _read_pairs(10_000)
    texts = _distinct_texts(pairs)[:_MAX_TEXTS]
    measured = {dtype: [matmul_gflops(dtype)] for dtype in ("float32", "bfloat16")}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        steps = _train(flags.FLAGS.preset, pairs, model)
        loaded = Model.from_pretrained(model)
        with quiet_start():
            encode = open_embedder(str(model))
        encode(texts[:100])
        measured = {dtype: [*rates, matmul_gflops(dtype)] for dtype, rates in measured.items()}
        seconds = _seconds(lambda: encode(texts))
    tokens = loaded.tokenizer.tokenize(texts).flat_values.shape[0]
    encoding = {"sentences": len(texts), "tokens": tokens, "seconds": seconds}
    flops, figures = _flops_per_token(loaded.encoder_settings), {}
    # A shared machine is slow at times: its best rate is the limit.
    limits = {dtype: max(*rates, matmul_gflops(dtype)) for dtype, rates in measured.items()}
    training_dtype = steps["precision"].removeprefix("mixed_")
    workloads = {"training": (steps, training_dtype, 3), "encoding": (encoding, "float32", 1)}
    for name, (totals, dtype, passes) in workloads.items():
        rates = {f"{unit}_per_second": totals[unit] / totals["seconds"] for unit in ("sentences", "tokens")}
        gflops = rates["tokens_per_second"] * flops * passes / 1e9
        share = {"dtype": dtype, "gflops": gflops, "fraction_of_ceiling": gflops / limits[dtype]}
        figures[name] = rates | (share if flops else {})
    _write("benchmark.json", {"ceiling_gflops": limits, **figures})


def _flops_per_token(encoder: Mapping[str, Any]) -> int:
    """The operations of a token's forward pass through the layers' weights; 0 if unknown."""
    if encoder["kind"] in ("transformer", "bert"):
        width = encoder["embedding_dim" if encoder["kind"] == "bert" else "hidden_dim"]
        return 2 * encoder["num_layers"] * width * (4 * width + 2 * encoder["intermediate_dim"])
    if encoder["kind"] == "cnn":  # only its convolutions: the rest is computed once per distinct piece
        widths = sum(width for width in encoder["filter_widths"] if width > 1)
        return 2 * encoder["num_layers"] * encoder["num_filters"] ** 2 * widths
    return 0


def _read_pairs(max_pairs: int) -> list[tuple[str, str]]:
    """The first pairs of each corpus of translations."""
    values = flags.FLAGS
    return [
        (record.source, record.target)
        for corpus in load_folder(Path(values.data), source=values.source, targets=[values.target])
        if corpus.kind == "parallel"
        for record, _ in itertools.islice(corpus, max_pairs)
        if isinstance(record, TranslationPair)
    ]


def _distinct_texts(pairs: Iterable[tuple[str, str]]) -> list[str]:
    texts = sorted({text for pair in pairs for text in pair})
    np.random.default_rng(0).shuffle(texts)
    return texts


def _train(preset: str, pairs: Iterable[tuple[str, str]], model: Path, *settings: str) -> dict[str, Any]:
    """Trains a preset on translation ranking: sentences, tokens and seconds of its steps, and precision."""
    # A preset's first phase trains another encoder.
    settings = ("training.bow_share=0", *settings, *(f"tasks.{task}.weight=0" for task in _OTHER_TASKS))
    if start := get_preset(preset).initial.model:
        settings = (*settings, f"initial.model={Path(start).absolute()}")
    values = flags.FLAGS
    with tempfile.TemporaryDirectory() as run:
        # Only these pairs: evaluation at the end of a training on many corpora takes minutes.
        corpus = Path(run) / "data" / "parallel" / f"pairs.{values.source}-{values.target}.tsv"
        corpus.parent.mkdir(parents=True)
        corpus.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
        command = [
            *(sys.executable, f"{ROOT}/training/main.py", f"--preset={preset}", f"--data={run}/data"),
            *(f"--steps={_WARM_UP_STEPS + values.steps}", "--minutes=0"),
            *(f"--run_dir={run}/run", f"--output={model}"),
            *(f"--set={setting}" for setting in settings),
        ]
        if subprocess.run(command, cwd=run, check=False).returncode:
            raise UserError("the training failed with the error above; correct it")
        lines = (Path(run) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        precision = read_json(Path(run) / "run" / "results.json")["precision"]
    before, *steps = [json.loads(line) for line in lines][_WARM_UP_STEPS - 1 :]
    totals = {unit: sum(step[unit] for step in steps) for unit in ("sentences", "tokens")}
    return {**totals, "seconds": steps[-1]["seconds"] - before["seconds"], "precision": precision}


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


# The same workloads by other libraries.

_PEERS = (  # workloads of evaluation/peers.py
    "training: sentence-transformers, float32",
    "training: sentence-transformers, bfloat16",
    "encoding: sentence-transformers, float32",
    "encoding: sentence-transformers, bfloat16",
    "one sentence: sentence-transformers",
    "average of words: model2vec",
    "published CNN: its ONNX in 8 bits",
    "published CNN: multilingual-e5-small in C",
)
_ROUNDS = 3


def _peers() -> None:
    """Alternates with evaluation/peers.py on the same texts, so that a busy machine slows both."""
    values = flags.FLAGS
    _require_peers()
    corpora = load_folder(Path(values.data), source=values.source, targets=[values.target])
    pairs = _read_pairs(-(-5000 // sum(corpus.kind == "parallel" for corpus in corpora)))
    np.random.default_rng(0).shuffle(pairs)
    texts = [text for pair in pairs for text in pair]
    with tempfile.TemporaryDirectory() as folder:
        ours, shape, dtypes = _make_workloads(Path(folder), texts)
        workloads = [name for name in _PEERS if not name.endswith("bfloat16") or "bfloat16" in dtypes]
        figures = _compare(ours, workloads, {"texts": texts, "pairs": pairs, "shape": shape})
    _write("peers.json", {"texts": len(texts), "sentences_per_second": figures})


def _imported() -> None:
    """Alternates with --others and with sentence-transformers, which has the model in the folder --peer."""
    values = flags.FLAGS
    _require_peers()
    texts, model = _read_texts(), SentenceEncoder(values.model)
    ours = {"encoding": {"xling_tf": _all(model, texts)}, "one sentence": {"xling_tf": _each(model, texts)}}
    workloads = [f"{name}: sentence-transformers" for name in ours]
    if values.others:
        ours["others"] = {Path(path).name: _all(SentenceEncoder(path), texts) for path in values.others}
    figures = _compare(ours, workloads, {"texts": texts, "model": str(Path(values.peer).absolute())})
    _write("imported.json", {"texts": len(texts), "sentences_per_second": figures})


def _require_peers() -> None:
    python = flags.FLAGS.python
    if not Path(python).exists():
        raise UserError(
            f"--python must be in an environment with the peers, but {python} is not there; make peers"
        )


def _compare(ours: "_Workloads", theirs: Sequence[str], inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the median rates of our workloads and of those of evaluation/peers.py, which take turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inputs.json"
        path.write_text(json.dumps(inputs), encoding="utf-8")
        command = [flags.FLAGS.python, str(ROOT / "evaluation" / "peers.py"), str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peers:
            _read_answer(peers)  # waits until it is ready
            rounds = [dict(_rates(ours, theirs, peers)) for _ in range(_ROUNDS)]
    figures: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, system in rounds[0]:
        figures[name][system] = statistics.median(rates[name, system] for rates in rounds)
    for name, rates in figures.items():
        if rates.keys() == ours[name].keys():
            continue  # no peer has this workload
        ours_best, theirs_best = (
            max(rate for system, rate in rates.items() if system.startswith("xling_tf") is is_ours)
            for is_ours in (True, False)
        )
        rates["ratio to the fastest of the others"] = ours_best / theirs_best
    return figures


# Functions that return sentences per second, by workload and system.
_Workloads = Mapping[str, Mapping[str, Callable[[], float]]]


def _make_workloads(folder: Path, texts: list[str]) -> tuple[_Workloads, Mapping[str, Any], Sequence[str]]:
    """Returns the same workloads by xling_tf, the sizes of the transformer, and the dtypes to measure."""
    values, numbers = flags.FLAGS, itertools.count()
    # More pairs than are measured, so that the word tables are as large as in use.
    train = partial(_train, values.preset, _read_pairs(10_000))
    precision = train(folder / "transformer", "encoder.num_layers=3")["precision"]
    train(folder / "average", "encoder.kind=static")
    paths = {"encoding": folder / "transformer", "average of words": folder / "average"}
    if values.model:
        paths["published CNN"] = Path(values.model)
    # bfloat16 only if the training found it faster: without hardware for it, a step of PyTorch takes hours.
    dtypes = ("float32", "bfloat16")[: 1 + (precision == "mixed_bfloat16")]
    models = {
        name: {f"xling_tf, {dtype}": SentenceEncoder(path, dtype) for dtype in dtypes}
        for name, path in paths.items()
    }

    def train_again() -> float:
        steps = train(folder / f"{next(numbers)}", "encoder.num_layers=3")
        return steps["sentences"] / steps["seconds"]

    workloads: _Workloads = {
        "training": {"xling_tf": train_again},
        "one sentence": {"xling_tf": _each(models["encoding"]["xling_tf, float32"], texts)},
        **{
            name: {system: _all(model, texts) for system, model in systems.items()}
            for name, systems in models.items()
        },
    }
    return workloads, read_json(folder / "transformer" / "config.json")["encoder"], dtypes


def _all(model: SentenceEncoder, texts: list[str]) -> Callable[[], float]:
    """Encodes all sentences, repeatedly for at least 0.2 seconds, and returns the rate."""

    def rate() -> float:
        times, seconds = timeit.Timer(partial(model.encode, texts)).autorange()
        return times * len(texts) / seconds

    return rate


def _each(model: SentenceEncoder, texts: list[str]) -> Callable[[], float]:
    """Encodes one sentence at a time, and returns the rate of the median."""
    return lambda: 1 / statistics.median(_seconds(partial(model.encode, text)) for text in texts[:200])


def _rates(
    ours: _Workloads, theirs: Iterable[str], peers: subprocess.Popen[str]
) -> Iterator[tuple[tuple[str, str], float]]:
    """Yields the sentences per second of each workload by xling_tf, and then of the same by the peers."""
    assert peers.stdin is not None
    for name, workloads in ours.items():
        for system, measure in workloads.items():
            yield (name, system), measure()
        for peer in theirs:
            if peer.startswith(f"{name}: "):
                print(peer, file=peers.stdin, flush=True)
                answer = json.loads(_read_answer(peers))
                yield (name, peer.removeprefix(f"{name}: ")), answer["sentences"] / answer["seconds"]


def _read_answer(peers: subprocess.Popen[str]) -> str:
    assert peers.stdout is not None
    if not (line := peers.stdout.readline()):
        raise UserError("evaluation/peers.py ended with the error above; make peers makes its environment")
    return line


# Time and memory by sentence length and batch size (Yang et al. 2019, sec. 7 and figure 2).

# Common words: most encoders have a token for each.
_WORDS = "a all and as at be but by can do for from go have he in it make not of on one out say see"


class ResourceUsage:
    """Time and memory of encoding batches of sentences of one length; depends on the machine.

    Every sentence ends in a new number, so that no cache of texts has it. A batch is encoded once to warm
    up, then until three calls and 0.3 seconds are reached, or 20 calls or 4 seconds.

    Args:
        lengths: Sentence lengths in words.
        batches: Batch sizes.
        seed: Seed of the sentences.
    """

    name = "figure2"
    protocol: Mapping[str, Any]

    def __init__(self, lengths: Sequence[int], batches: Sequence[int], seed: int = 0) -> None:
        self.protocol = {"lengths_in_words": list(lengths), "batches": list(batches), "seed": seed}
        # From few words to many: memory that is kept after a large batch would hide that of a small one.
        self._cells = sorted(itertools.product(lengths, batches), key=np.prod)
        self._rng = np.random.default_rng(seed)
        self._numbers = itertools.count(1000)

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "length_<n>/batch_<m>/sentences_per_second", ".../milliseconds" of the median call, and
        ".../memory_growth_mib" of this process during the first call, if the model is in it.
        """
        description = as_embedder(encode).description
        self.protocol = {**self.protocol, "device": description.get("device", "unknown")}
        encode_checked(encode, self._compose(1, 1))  # loading and compiling do not count
        before = _resident_bytes()
        scores: dict[str, float] = {}
        for length, batch in self._cells:
            cell, texts = f"length_{length}/batch_{batch}", self._compose(length, batch)
            peak = _peak_bytes(partial(encode_checked, encode, texts))
            times: list[float] = []
            while len(times) < 20 and sum(times) < 4 and (len(times) < 3 or sum(times) < 0.3):
                times.append(_seconds(partial(encode, self._compose(length, batch))))
            median = statistics.median(times)
            scores[f"{cell}/sentences_per_second"] = batch / median
            scores[f"{cell}/milliseconds"] = 1000 * median
            if "url" not in description:
                scores[f"{cell}/memory_growth_mib"] = max(0, peak - before) / _MIB
        return scores

    def _compose(self, length: int, batch: int) -> list[str]:
        words = self._rng.choice(_WORDS.split(), [batch, length - 1]).tolist()
        return [" ".join([*row, str(next(self._numbers))]) for row in words]


def _resident_bytes() -> int:
    return int(library("psutil", "psutil", "evaluation").Process().memory_info().rss)


def _peak_bytes(call: Callable[[], object]) -> int:
    """The largest memory use during a call."""
    peak, is_over = _resident_bytes(), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(0.002):
            peak = max(peak, _resident_bytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        call()
    finally:
        is_over.set()
        watcher.join()
    return max(peak, _resident_bytes())


_SIZES = (1, 4, 16, 64, 256)


def _system() -> None:
    with quiet_start():
        embedder = open_embedder(flags.FLAGS.model)
    output = Path(flags.FLAGS.output or f"runs/evaluation/{embedder.name}.json")
    dataset = Dataset(name="figure2", files=(), load=partial(ResourceUsage, _SIZES, _SIZES))
    results = evaluate_embedder(
        embedder, {"resources/figure2": dataset}, output, missing={}, folder=ROOT, seed=0
    )
    for cell, value in results["scores"]["resources"]["figure2"].items():
        print(f"{cell:45} {value:12.2f}")


# An exported model in TensorFlow, LiteRT and ONNX Runtime.

_opened: dict[str, Any] = {}  # the encoder of a child process


def _runtimes() -> None:
    """Compares a model with its exports to LiteRT and ONNX Runtime.

    Each of the three has its own process, in which its memory and start are measured. They take turns to
    encode, so that the ratios of their speeds hold on a busy machine too.
    """
    values, texts = flags.FLAGS, _read_texts()
    folders = {"tensorflow": values.model, "litert": values.litert, "onnx": values.onnx}
    context = multiprocessing.get_context("spawn")
    pools = {name: ProcessPoolExecutor(1, mp_context=context) for name in folders}
    figures = {name: pools[name].submit(_open, name, folders[name]).result() for name in pools}
    first = {name: pool.submit(_encode, texts).result() for name, pool in pools.items()}
    rounds = [
        {name: pool.submit(_encode, texts).result()[1] for name, pool in pools.items()}
        for _ in range(_ROUNDS)
    ]
    expected = first["tensorflow"][0]
    for name, pool in pools.items():
        difference = np.abs(first[name][0] - expected)
        figures[name] |= {
            "resident_mib": pool.submit(_resident_bytes).result() / _MIB,
            "sentences_per_second": len(texts) / statistics.median(r[name] for r in rounds),
            "speed_to_tensorflow": statistics.median(r["tensorflow"] / r[name] for r in rounds),
            "largest_difference": float(difference.max()),
            # SentencePiece's versions split some runs of one character differently; the splits are equally
            # likely.
            "texts_with_other_tokens": int((difference.max(axis=1) > 1e-4).sum()),
            "least_cosine": float((first[name][0] * expected).sum(axis=1).min()),
        }
        pool.shutdown()
    versions = {name: importlib.metadata.version(name) for name in ("ai-edge-litert", "onnxruntime")}
    _write("runtimes.json", {"texts": len(texts), **figures, "runtime_versions": versions})


def _read_texts() -> list[str]:
    values = flags.FLAGS
    lines = (line for _, line in read_every_line(Path(values.texts)) if line)
    texts = [*itertools.islice(lines, values.sentences)]
    if not texts:
        raise UserError(f"--texts must have a sentence a line, but {values.texts} has none")
    return texts


def _open(name: str, folder: str) -> dict[str, float]:
    """Opens an encoder in this process; returns the time until its first vector and its size on disk."""
    begin = time.perf_counter()
    if name == "tensorflow":
        with quiet_start():
            _opened["encoder"] = SentenceEncoder(folder)
    else:
        from xling_tf.savedmodel.runtimes import load

        _opened["encoder"] = load(folder)
    _opened["encoder"].encode(["one"])
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {
        "seconds_to_first_vector": time.perf_counter() - begin,
        "disk_mib": sum(path.stat().st_size for path in files) / _MIB,
    }


def _encode(texts: Sequence[str]) -> tuple[np.ndarray, float]:
    """Returns the vectors of the texts, and the seconds that they took."""
    begin = time.perf_counter()
    vectors = _opened["encoder"].encode(texts)
    return vectors, time.perf_counter() - begin


# Search in fewer bytes, with FAISS.

# (index, dimensions, candidates that are scored again for each hit): "SQ8" has a byte for each dimension,
# "LSH" a bit.
_INDEXES: tuple[tuple[str, int | None, int], ...] = (
    *(("Flat", dim, 1) for dim in (None, 256, 128, 64)),
    *(("SQ8", dim, 1) for dim in (None, 256, 128)),
    ("LSH", None, 1),
    *((f"LSH,Refine({refined})", None, times) for refined in ("SQ8", "Flat") for times in (4, 10)),
)


def _vectors() -> None:
    """Compares FAISS indexes: how many of the ten nearest they find, and how often a translation is first."""
    values, faiss = flags.FLAGS, library("faiss", "FAISS", "mining")
    folder = load_folder(Path(values.data), source=values.source, targets=[values.target])
    corpora = {corpus.name: corpus for corpus in folder if corpus.kind == "parallel"}
    if values.corpus not in corpora:
        raise UserError(f"--corpus must be one of {', '.join(corpora)}, got {values.corpus!r}")
    pairs = [record for record, _ in corpora[values.corpus] if isinstance(record, TranslationPair)]
    np.random.default_rng(0).shuffle(pairs)
    row_of: dict[str, int] = {}
    translations: defaultdict[str, set[int]] = defaultdict(set)
    for pair in pairs:
        if pair.target in row_of or len(row_of) < values.sentences:
            translations[pair.source].add(row_of.setdefault(pair.target, len(row_of)))
    texts = list(translations)[: values.queries]
    with quiet_start():
        embedder = open_embedder(values.model)
    queries, corpus = embedder(texts), embedder(list(row_of))
    k = min(10, len(corpus))
    exact = nearest(unit_vectors(queries, "queries"), unit_vectors(corpus, "corpus"), k, kind="flat").indices
    results = []
    for name, dim, oversampling in _INDEXES:
        if (dim or 0) >= queries.shape[1]:
            continue
        short_queries, short_corpus = (truncated(v, dim or v.shape[1]) for v in (queries, corpus))
        index = faiss.index_factory(short_corpus.shape[1], name)
        index.train(short_corpus)
        index.add(short_corpus)
        if oversampling > 1:
            index.k_factor = oversampling
        start = time.perf_counter()
        _, rows = index.search(short_queries, k)
        seconds = time.perf_counter() - start
        recalls = [len({*hits} & {*best}) / len(best) for hits, best in zip(rows, exact, strict=True)]
        firsts = [hits[0] in translations[text] for hits, text in zip(rows, texts, strict=True)]
        results.append(
            {
                **{"index": name, "dim": short_corpus.shape[1], "oversampling": oversampling},
                "bytes_per_vector": index.sa_code_size(),
                "milliseconds_per_query": round(1000 * seconds / len(texts), 2),
                "recall_at_10": round(statistics.fmean(recalls), 4),
                "translation_at_1": round(statistics.fmean(firsts), 4),
            }
        )
    figures = {
        "corpus": f"{values.corpus}.{values.source}-{values.target}",
        **{"sentences": len(row_of), "queries": len(texts), "models": {embedder.name: results}},
    }
    _write("quantization.json", figures)


def _mining() -> None:
    """Mines the translations of --texts, mixed with --sentences others on each side that have none."""
    values = flags.FLAGS
    planted = [pair for pair, _ in read_parallel(Path(values.texts))]
    if values.work is not None:
        require_writable_folder(Path(values.work), "give another --work")
    texts = [{pair.source for pair in planted}, {pair.target for pair in planted}]
    others = _without_translations(_read_pairs(sys.maxsize), texts)
    figures: dict[str, Any] = {"planted": len(planted), "sentences": values.sentences}
    with tempfile.TemporaryDirectory(dir=values.work) as work:
        for language, known, distractors in zip((values.source, values.target), texts, others, strict=True):
            sentences = [*known, *itertools.islice(_recombined(distractors), values.sentences)]
            np.random.default_rng(1).shuffle(sentences)
            lines = Path(work, f"{language}.txt")
            lines.write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
            encode = [f"--model={values.model}", f"--input={lines}", f"--output={work}/{language}"]
            figures[f"encoding {language}"] = _run("export/encode.py", *encode, "--precision=int8")
        mined = Path(work, "mined.tsv")
        mine = [f"--source={work}/{values.source}", f"--target={work}/{values.target}", f"--output={mined}"]
        figures["mining"] = _run("data/mine.py", *mine, "--threshold=0", f"--memory={values.memory}")
        rows = [line.split("\t") for _, line in read_every_line(mined)]
    figures |= _precision_and_recall([(float(row[0]), row[1], row[2]) for row in rows], planted)
    _write("scale-mining.json", figures)


def _without_translations(pairs: Sequence[tuple[str, str]], excluded: Sequence[set[str]]) -> list[list[str]]:
    """Returns sources and targets that no pairs connect, directly or through other texts."""
    normal = [
        ["".join(filter(str.isalnum, text.casefold())) for text in side] for side in zip(*pairs, strict=True)
    ]
    numbers: dict[tuple[int, str], int] = {}
    ends = [[numbers.setdefault((side, text), len(numbers)) for text in normal[side]] for side in range(2)]
    graph = coo_array((np.ones(len(pairs)), ends), shape=(len(numbers), len(numbers)))
    groups = connected_components(graph, directed=False)[1][ends[0]]
    closed = {
        group for pair, group in zip(pairs, groups, strict=True) if {*pair} & (excluded[0] | excluded[1])
    }
    results = []
    for side in range(2):
        rows = [row for row, group in enumerate(groups) if group % 2 == side and group not in closed]
        texts = sorted({pairs[row][side] for row in rows})
        np.random.default_rng(0).shuffle(texts)
        results.append(texts)
    return results


def _recombined(texts: list[str]) -> Iterator[str]:
    """Yields texts, then new ones: the first half of a text of four words or more with another's second.

    If there are no more, raises a `UserError`.
    """
    yield from texts
    words = [text.split() for text in texts if len(text.split()) > 3]
    seen, rng = {*texts}, np.random.default_rng(0)
    count = -1
    while words and len(seen) > count:
        count = len(seen)
        for first, second in rng.integers(len(words), size=(10_000, 2)).tolist():
            first_half, second_half = words[first], words[second]
            half = " ".join([*first_half[: len(first_half) // 2], *second_half[len(second_half) // 2 :]])
            if half not in seen:
                seen.add(half)
                yield half
    raise UserError(f"--data gives only {len(seen)} sentences without translations; give fewer --sentences")


def _run(program: str, *arguments: str) -> dict[str, float]:
    """Runs a program; its seconds and its peak memory."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, str(ROOT / program), *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"{program} failed with the error above; correct it")
    return {
        **{
            "seconds": round(time.monotonic() - start),
            "processor_seconds": round(usage.ru_utime + usage.ru_stime),
        },
        "peak_gib": round(usage.ru_maxrss / 2**20, 2),
    }


def _precision_and_recall(
    mined: list[tuple[float, str, str]], planted: list[TranslationPair]
) -> dict[str, Any]:
    """Chooses the threshold by one half of the planted sentences, and measures with it on the other half."""
    # Nobody knows which other pairs are right: templates and near-translations are among them.
    right = {(pair.source, pair.target) for pair in planted}
    sources, targets = ({*side} for side in zip(*right, strict=True))
    by_half: list[list[tuple[float, bool]]] = [[], []]
    for score, source, target in mined:
        if source in sources or target in targets:
            by_half[crc32(source.encode()) % 2].append((score, (source, target) in right))
    num_right = Counter(crc32(source.encode()) % 2 for source, _ in right)

    def measure(half: int, threshold: float) -> tuple[float, float, float]:
        hits = [is_right for score, is_right in by_half[half] if score >= threshold]
        precision, recall = sum(hits) / max(1, len(hits)), sum(hits) / max(1, num_right[half])
        return 2 * precision * recall / max(1e-9, precision + recall), precision, recall

    threshold = max(np.arange(1.0, 2.0, 0.01).tolist(), key=lambda threshold: measure(0, threshold))
    f1, precision, recall = (round(100 * value, 1) for value in measure(1, threshold))
    others = (score for score, source, target in mined if source not in sources and target not in targets)
    scores = {"precision": precision, "recall": recall, "f1": f1}
    return {
        "threshold": round(threshold, 2),
        **scores,
        "pairs_of_others": sum(score >= threshold for score in others),
    }


if __name__ == "__main__":
    flags.DEFINE_string("model", "", "Model, as evaluation/main.py takes it; peers: the published CNN.")
    flags.DEFINE_string("litert", "", "runtimes: folder of the model's LiteRT export.")
    flags.DEFINE_string("onnx", "", "runtimes: folder of its ONNX export.")
    flags.DEFINE_string("texts", "", "imported, runtimes: file of sentences, a line each; mining: of pairs.")
    flags.DEFINE_string("peer", "", "imported: folder of the same model for sentence-transformers.")
    flags.DEFINE_list("others", [], "imported: more models, timed in turns with it on the same sentences.")
    flags.DEFINE_string("python", ".peers/bin/python", "peers: interpreter of their environment.")
    flags.DEFINE_string("preset", "en-es", "training: preset whose model is measured.")
    flags.DEFINE_integer("steps", 30, "training: number of measured steps.", lower_bound=2)
    flags.DEFINE_string("data", str(SAMPLE_FOLDER), "Folder of corpora.")
    flags.DEFINE_string("corpus", "tatoeba", "vectors: name of the corpus of translations.")
    flags.DEFINE_string("source", "en", "Language of the queries.")
    flags.DEFINE_string("target", "es", "Language that is searched.")
    flags.DEFINE_integer(
        "sentences",
        100_000,
        "vectors, imported, runtimes: largest number of texts; mining: others.",
        lower_bound=1,
    )
    flags.DEFINE_integer("queries", 1000, "vectors: largest number of queries.", lower_bound=1)
    flags.DEFINE_float("memory", 4, "mining: GiB to use.")
    flags.DEFINE_string("work", None, "mining: folder for the collections and their vectors.")
    flags.DEFINE_string("output", None, "Results file.")
    run(main, "the same command starts again", takes_files=True)
