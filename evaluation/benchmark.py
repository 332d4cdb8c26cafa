"""Measures speed, memory and the size of vectors on this machine.

    python evaluation/benchmark.py training --pair en-es --data DIR      # beside the machine's own ceiling
    python evaluation/benchmark.py peers --data DIR                      # beside other libraries: make peers
    python evaluation/benchmark.py lstm                                  # seq2seq-* beside its products
    python evaluation/benchmark.py corpora --data DIR                    # read and divided
    python evaluation/benchmark.py memory --model exported/en-es --data DIR    # of one call with many texts
    python evaluation/benchmark.py system --model exported/en-es         # by sentence length and batch size
    python evaluation/benchmark.py vectors --model exported/en-es --data DIR   # in fewer bytes

`system` adds the suite `resources` to the model's results in `runs/evaluation`, where evaluation/report.py
finds it; the others write figures to `--output`.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(ROOT))

import numpy as np
from absl import app, flags

from xling_tf.config import EncoderConfig, ExperimentConfig, from_json
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.store import transient_store
from xling_tf.errors import (
    UserError,
    library,
    one_line_errors,
    parse_flags_and_files,
    quiet_start,
    set_up_logging,
)
from xling_tf.evaluators.data import Dataset, Suite, select
from xling_tf.evaluators.encoding import Encode, as_system, encode_checked
from xling_tf.evaluators.running import evaluate_system
from xling_tf.evaluators.systems import open_system
from xling_tf.files import provenance, replacing
from xling_tf.hub.saved_models import load_saved_model, resolve
from xling_tf.presets import get_preset
from xling_tf.search.neighbours import truncated
from xling_tf.search.quantization import Int8Ranges, Precision, quantize
from xling_tf.search.semantic import Hit, quantized_search, semantic_search
from xling_tf.sentence_encoder import SentenceEncoder

_WARM_UP_STEPS = 5
_OTHER_TASKS = (
    *("response_prediction", "quick_thought", "inference", "question_answering", "distillation"),
    *("entailment_ranking", "graded_similarity"),
)
_ENCODED = 10_000  # texts
_MIB = 2**20


def main(argv: list[str]) -> None:
    """Measures what the first argument names."""
    set_up_logging()
    with one_line_errors("the same command starts anew"):
        kinds = {
            each.__name__[1:]: each
            for each in (_training, _peers, _lstm, _corpora, _memory, _system, _vectors)
        }
        if argv[1:2] not in [[kind] for kind in kinds]:
            raise UserError(f"one of {', '.join(kinds)} is expected, got {argv[1:]}")
        kinds[argv[1]]()


def _write(default: str, figures: Mapping[str, Any]) -> None:
    path = Path(flags.FLAGS.output or default)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**provenance(), **figures}, indent=2) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)


# Training and encoding against the machine's own matrix products.


def _training() -> None:
    """Trains a preset on translation ranking alone, and encodes with what is exported."""
    from xling_tf.text.preprocessor import build_preprocessor, read_vocabulary  # TensorFlow takes seconds
    from xling_tf.trainer.experiment import matmul_gflops

    pairs = _read_pairs(10_000)
    texts = _distinct_texts(pairs)[:_ENCODED]
    ceilings = {dtype: [matmul_gflops(dtype)] for dtype in ("float32", "bfloat16")}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        steps = _train(flags.FLAGS.pair, pairs, model)
        config = from_json(ExperimentConfig, (model / "config.json").read_text(encoding="utf-8"))
        vocabulary = read_vocabulary(model / "training", config.text.tokenizer)
        with quiet_start():
            encode = open_system(str(model))
        encode(texts[:100])
        ceilings = {dtype: [*rates, matmul_gflops(dtype)] for dtype, rates in ceilings.items()}
        seconds = _seconds(lambda: encode(texts))
    tokens = build_preprocessor(config.text, vocabulary).tokenize(texts).flat_values.shape[0]
    encoded = {"sentences": len(texts), "tokens": tokens, "seconds": seconds}
    flops, figures = _flops(config.encoder), {}
    # A machine that others share is slow at times: its best is the ceiling.
    best = {dtype: max(*rates, matmul_gflops(dtype)) for dtype, rates in ceilings.items()}
    trained_in = config.training.precision.removeprefix("mixed_")
    for name, work, dtype, passes in (
        ("training", steps, trained_in, 3),
        ("encoding", encoded, "float32", 1),
    ):
        figures[name] = {
            f"{unit}_per_second": work[unit] / work["seconds"] for unit in ("sentences", "tokens")
        }
        if flops:
            gflops = figures[name]["tokens_per_second"] * flops * passes / 1e9
            figures[name] |= {"dtype": dtype, "gflops": gflops, "fraction_of_ceiling": gflops / best[dtype]}
    _write("evaluation/results/benchmark.json", {"ceiling_gflops": best, **figures})


def _flops(encoder: EncoderConfig) -> int:
    """Multiplications and additions of a token's way through the layers of weights, forward; 0: not known."""
    if encoder.kind == "transformer":
        attention, feedforward = 4 * encoder.hidden_dim, 2 * encoder.intermediate_dim
        return 2 * encoder.num_layers * encoder.hidden_dim * (attention + feedforward)
    if encoder.kind == "cnn":  # its convolutions; what enters them is computed once a distinct piece
        return (
            2 * encoder.num_layers * encoder.num_filters**2 * sum(w for w in encoder.filter_widths if w > 1)
        )
    return 0


def _read_pairs(most: int) -> list[tuple[str, str]]:
    """The first pairs of each corpus of translations, at most so many of one."""
    asked = flags.FLAGS
    return [
        (record.source, record.target)
        for corpus in load_folder(Path(asked.data), source=asked.source, targets=[asked.target])
        if corpus.kind == "parallel"
        for record, _ in itertools.islice(corpus, most)
        if isinstance(record, TranslationPair)
    ]


def _distinct_texts(pairs: Iterable[tuple[str, str]]) -> list[str]:
    texts = sorted({text for pair in pairs for text in pair})
    np.random.default_rng(0).shuffle(texts)
    return texts


def _train(pair: str, pairs: Iterable[tuple[str, str]], model: Path, *settings: str) -> dict[str, float]:
    """Trains a preset by its program to rank translations: sentences, tokens and seconds of its steps."""
    # The first phase of a preset trains another encoder.
    settings = ("training.static_share=0", *settings, *(f"tasks.{task}.weight=0" for task in _OTHER_TASKS))
    if start := get_preset(pair).initial.model:
        settings = (*settings, f"initial.model={Path(start).absolute()}")
    asked = flags.FLAGS
    with tempfile.TemporaryDirectory() as run:
        # They alone: a folder of many corpora takes minutes to evaluate.
        corpus = Path(run) / "data" / "parallel" / f"pairs.{asked.source}-{asked.target}.tsv"
        corpus.parent.mkdir(parents=True)
        corpus.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
        command = [
            *(sys.executable, f"{ROOT}/training/main.py", f"--pair={pair}", f"--data={run}/data"),
            *(f"--steps={_WARM_UP_STEPS + asked.steps}", f"--run_dir={run}/run", f"--output={model}"),
            *(f"--set={setting}" for setting in settings),
        ]
        if subprocess.run(command, cwd=run, check=False).returncode:
            raise UserError("the training must succeed, but ended with the error above; correct it")
        lines = (Path(run) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    before, *steps = [json.loads(line) for line in lines][_WARM_UP_STEPS - 1 :]
    done = {unit: sum(step[unit] for step in steps) for unit in ("sentences", "tokens")}
    return {**done, "seconds": steps[-1]["seconds"] - before["seconds"]}


def _seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


# The same work by other libraries.

_PEERS = (  # works of evaluation/peers.py
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
    """Takes turns with evaluation/peers.py on the same texts: what slows the machine slows both."""
    asked = flags.FLAGS
    if not Path(asked.python).exists():
        raise UserError(
            f"--python expects an environment with the peers, but {asked.python} is not; make peers"
        )
    corpora = load_folder(Path(asked.data), source=asked.source, targets=[asked.target])
    pairs = _read_pairs(-(-5000 // sum(corpus.kind == "parallel" for corpus in corpora)))
    np.random.default_rng(0).shuffle(pairs)
    texts = [text for pair in pairs for text in pair]
    with tempfile.TemporaryDirectory() as folder:
        ours, shape, dtypes = _make_works(Path(folder), texts)
        given = Path(folder) / "given.json"
        given.write_text(json.dumps({"texts": texts, "pairs": pairs, "shape": shape}), encoding="utf-8")
        command = [asked.python, str(ROOT / "evaluation" / "peers.py"), str(given)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peers:
            _read_answer(peers)  # that it is ready
            asked_for = [work for work in _PEERS if not work.endswith("bfloat16") or "bfloat16" in dtypes]
            rounds = [dict(_rates(ours, asked_for, peers)) for _ in range(_ROUNDS)]
    figures: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, system in rounds[0]:
        figures[name][system] = statistics.median(rates[name, system] for rates in rounds)
    for rates in figures.values():
        # Of each side its fastest: one of the two is True where a system is ours.
        best = {
            ours: max(r for s, r in rates.items() if s.startswith("xling_tf") is ours)
            for ours in (True, False)
        }
        rates["ratio to the fastest of the others"] = best[True] / best[False]
    _write("evaluation/results/peers.json", {"texts": len(texts), "sentences_per_second": figures})


# By work and system: gives sentences a second.
_Works = Mapping[str, Mapping[str, Callable[[], float]]]


def _make_works(folder: Path, texts: list[str]) -> tuple[_Works, Mapping[str, Any], Sequence[str]]:
    """Our works, the shape of the transformer, and the dtypes in which systems are measured."""
    asked, numbers = flags.FLAGS, itertools.count()
    # Of more than are measured, so that tables are as large as in use.
    train = partial(_train, asked.pair, _read_pairs(10_000))
    train(folder / "transformer", "encoder.num_layers=3")
    train(folder / "average", "encoder.kind=static", "encoder.add_average=false")
    paths = {"encoding": folder / "transformer", "average of words": folder / "average"}
    if asked.model:
        paths["published CNN"] = Path(asked.model)
    config = json.loads((folder / "transformer" / "config.json").read_text(encoding="utf-8"))
    # As the training has found it worthwhile: without hardware for it, a step of PyTorch's takes hours.
    dtypes = ("float32", "bfloat16")[: 1 + (config["training"]["precision"] == "mixed_bfloat16")]
    models = {
        name: {f"xling_tf, {dtype}": SentenceEncoder.load(path, dtype) for dtype in dtypes}
        for name, path in paths.items()
    }

    def encode_all(model: SentenceEncoder) -> float:
        return len(texts) / _seconds(partial(model.encode, texts))

    def train_again() -> float:
        done = train(folder / f"{next(numbers)}", "encoder.num_layers=3")
        return done["sentences"] / done["seconds"]

    def encode_each() -> float:
        encode = models["encoding"]["xling_tf, float32"].encode
        return 1 / statistics.median(_seconds(partial(encode, text)) for text in texts[:200])

    works: _Works = {
        "training": {"xling_tf": train_again},
        "one sentence": {"xling_tf": encode_each},
        **{
            name: {system: partial(encode_all, model) for system, model in systems.items()}
            for name, systems in models.items()
        },
    }
    return works, config["encoder"], dtypes


def _rates(
    ours: _Works, theirs: Iterable[str], peers: subprocess.Popen[str]
) -> Iterator[tuple[tuple[str, str], float]]:
    """Each work of ours, and then those of the peers beside it: sentences a second."""
    assert peers.stdin is not None
    for name, works in ours.items():
        for system, work in works.items():
            yield (name, system), work()
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


# LSTMs beside their own matrix products.

_PAIRS, _LENGTH, _PIECES = 64, 16, 600  # of a batch of seq2seq-*: pairs, pieces a sentence, distinct pieces


def _lstm() -> None:
    """Times a step of the encoder and decoder of `seq2seq-*`, in turns with its bare products."""
    import tensorflow as tf

    from xling_tf.encoders.lstm import LstmEncoder
    from xling_tf.tasks.translation import Decoder

    config = get_preset("seq2seq-similarity").encoder
    dim, first, second = config.embedding_dim, config.intermediate_dim, config.hidden_dim
    encoder, decoder = LstmEncoder(config, num_words=_PIECES), Decoder(2, dim)
    encoder.build_variables()
    decoder.build((None, second))
    count = 2 * _PAIRS
    table, lengths = tf.random.normal([_PIECES, dim]), tf.fill([count], _LENGTH)
    tokens = tf.random.uniform([count, _LENGTH], maxval=_PIECES, dtype=tf.int32)
    variables = [v.value for v in (*encoder.dense_variables, *decoder.trainable_variables)]

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            encodings = encoder.encode(table, tokens, lengths)
            loss = tf.reduce_sum(tf.square(decoder(encodings, table, tokens, lengths, language=0)))
        return tf.linalg.global_norm(tape.gradient(loss, variables))

    read, said = count * _LENGTH, count * (_LENGTH + 1)
    # Rows, inputs and outputs: both directions, the layer above, the decoder, its outputs.
    shapes = [
        *2 * [(read, dim, 4 * first), (read, first, 4 * first)],
        *2 * [(read, second, 4 * second)],
        *[(rows, second, 4 * second) for rows in (said, count)],
        *[(said, dim, 4 * second), (said, second, dim), (said, dim, _PIECES + 1)],
    ]
    factors = [
        tuple(map(tf.random.normal, ([rows, inputs], [inputs, outputs], [rows, outputs])))
        for rows, inputs, outputs in shapes
    ]

    @tf.function(autograph=False)
    def products() -> tf.Tensor:
        results = []
        for x, w, g in factors:
            results += [x @ w, tf.matmul(x, g, transpose_a=True), tf.matmul(g, w, transpose_b=True)]
        return tf.linalg.global_norm(results)

    works = {"step": lambda: step().numpy(), "products": lambda: products().numpy()}
    rounds = [{name: _seconds(work) for name, work in works.items()} for _ in range(1 + 2 * _ROUNDS)][1:]
    seconds = {name: statistics.median(each[name] for each in rounds) for name in works}
    shape = {"pairs": _PAIRS, "pieces_per_sentence": _LENGTH, "distinct_pieces": _PIECES}
    ratio = seconds["step"] / seconds["products"]
    _write("evaluation/results/lstm.json", {**shape, "seconds": seconds, "step_to_products": ratio})


# Corpora, from their files to records for training.


def _corpora() -> None:
    """Times what a training does with corpora before its first step, in a core's own seconds."""
    asked, seconds = flags.FLAGS, []
    corpora = load_folder(Path(asked.data), source=asked.source, targets=[asked.target])
    peak = _peak_bytes(lambda: transient_store(corpora))
    for _ in range(_ROUNDS):
        begin = time.process_time()
        counts = transient_store(corpora).counts()
        seconds.append(time.process_time() - begin)
    rate = sum(counts.values()) / statistics.median(seconds)
    figures = {"corpora": len(counts), "records": sum(counts.values())}
    _write(
        "evaluation/results/corpora.json",
        {**figures, "records_per_core_second": rate, "peak_mib": peak / _MIB},
    )


# The memory of one call with many sentences.


def _memory() -> None:
    """Encodes ten thousand sentences in one call, and then as many as asked."""
    asked = flags.FLAGS
    texts = _distinct_texts(_read_pairs(2000))[: asked.sentences]
    with quiet_start():
        model = load_saved_model(resolve(asked.model))
    resident = _resident_bytes() / _MIB
    peaks = {
        name: {len(some): _peak_bytes(partial(call, some)) / _MIB for some in (texts[:_ENCODED], texts)}
        for name, call in (("encode", SentenceEncoder(model).encode), ("model", model))
    }
    figures = {"model": asked.model, "resident_mib": resident, "peak_mib_by_sentences": peaks}
    _write("evaluation/results/memory.json", figures)


# Time and memory by sentence length and batch size (Yang et al. 2019, sec. 7 and figure 2).

# Common words: most systems have an own token for each.
_WORDS = "a all and as at be but by can do for from go have he in it make not of on one out say see"


class ResourceUsage:
    """Time and memory of encoding batches of sentences of one length; it differs between machines.

    Every sentence ends in a number that was not used before: no cache of whole texts has it. A batch is
    encoded once to warm up, then until it took three calls and 0.3 seconds, or 20 calls or 4 seconds.
    """

    name = "figure2"
    protocol: Mapping[str, Any]

    def __init__(self, lengths: Sequence[int], batches: Sequence[int], seed: int = 0) -> None:
        self.protocol = {
            "reproducible": False,
            "lengths_in_words": list(lengths),
            "batches": list(batches),
            "seed": seed,
        }
        # From few words to many: what a system keeps after a large batch would hide a small one's.
        self._cells = sorted(itertools.product(lengths, batches), key=np.prod)
        self._rng = np.random.default_rng(seed)
        self._numbers = itertools.count(1000)

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "length_<n>/batch_<m>/sentences_per_second", ".../milliseconds" of the median call, and
        ".../memory_growth_mib" of this process during the first, where the model is in it.
        """
        description = as_system(encode).description
        self.protocol = {**self.protocol, "device": description.get("device", "not told")}
        encode_checked(encode, self._compose(1, 1))  # what is loaded or compiled once is no growth
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
    """The most memory in use during a call."""
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
RESOURCES = Suite(
    name="resources",
    title="Time and memory by sentence length and batch size",
    source="Yang et al. 2019, sec. 7, figure 2",
    find=lambda folder, seed: [
        Dataset(name="figure2", files=(), load=partial(ResourceUsage, _SIZES, _SIZES, seed))
    ],
)


def _system() -> None:
    with quiet_start():
        system = open_system(flags.FLAGS.model)
    output = Path(flags.FLAGS.output or f"runs/evaluation/{system.name}.json")
    selection = select({"resources": RESOURCES}, ROOT, [], 0)
    results = evaluate_system(system, selection, output, folder=ROOT, seed=0)
    for cell, value in results["scores"]["resources"]["figure2"].items():
        print(f"{cell:45} {value:12.2f}")


# What vectors in fewer bytes find of what the whole ones find.

# (precision, dimensions, candidates scored again for each hit, what they are scored by)
_WAYS: tuple[tuple[Precision, int | None, int, Precision | None], ...] = (
    *(("float32", dim, 1, None) for dim in (None, 256, 128, 64)),
    *(("int8", dim, 1, None) for dim in (None, 256, 128)),
    *(("ubinary", None, times, None) for times in (1, 4, 10)),
    *(("ubinary", None, times, kind) for kind in ("int8", "float32") for times in (4, 10)),
    ("ubinary", 256, 10, None),
)


def _vectors() -> None:
    """How many of the float vectors' ten nearest are found, and how often a translation comes first."""
    asked = flags.FLAGS
    found = load_folder(Path(asked.data), source=asked.source, targets=[asked.target])
    corpora = {corpus.name: corpus for corpus in found if corpus.kind == "parallel"}
    if asked.corpus not in corpora:
        raise UserError(f"--corpus must be one of {', '.join(corpora)}, got {asked.corpus!r}")
    pairs = [record for record, _ in corpora[asked.corpus] if isinstance(record, TranslationPair)]
    np.random.default_rng(0).shuffle(pairs)
    places: dict[str, int] = {}
    right: defaultdict[str, set[int]] = defaultdict(set)
    for pair in pairs:
        if pair.target in places or len(places) < asked.sentences:
            right[pair.source].add(places.setdefault(pair.target, len(places)))
    texts = list(right)[: asked.queries]
    with quiet_start():
        system = open_system(asked.model)
    queries, corpus = system(texts), system(list(places))
    exact = _ids(semantic_search(queries, corpus))
    rows = []
    for precision, dim, oversampling, rescore_with in _WAYS:
        if (dim or 0) >= queries.shape[1]:
            continue
        some, vectors = (truncated(v, dim) if dim else v for v in (queries, corpus))
        ranges = Int8Ranges.calibrated(vectors[:10_000]) if precision == "int8" else None
        codes = quantize(vectors, precision, ranges=ranges)
        again = quantize(vectors, rescore_with) if rescore_with else None
        options: dict[str, Any] = {"ranges": ranges, "rescore_multiplier": oversampling}
        options["rescore_with"] = again
        begin = time.perf_counter()
        if precision == "float32":
            hits = _ids(semantic_search(some, codes))
        else:
            hits = _ids(quantized_search(some, codes, precision, 10, **options))
        seconds = time.perf_counter() - begin
        recalls = [len({*ours} & {*all}) / len(all) for ours, all in zip(hits, exact, strict=True)]
        firsts = [row[0] in right[text] for row, text in zip(hits, texts, strict=True)]
        rows.append(
            {
                **{"precision": precision, "dim": dim or queries.shape[1]},
                **{"oversampling": oversampling, "rescore_with": rescore_with},
                "bytes_per_vector": codes[0].nbytes,
                "milliseconds_per_query": round(1000 * seconds / len(texts), 2),
                "recall_at_10": round(statistics.fmean(recalls), 4),
                "translation_at_1": round(statistics.fmean(firsts), 4),
            }
        )
    figures = {
        "corpus": f"{asked.corpus}.{asked.source}-{asked.target}",
        **{"sentences": len(places), "queries": len(texts), "models": {system.name: rows}},
    }
    _write("evaluation/results/quantization.json", figures)


def _ids(hits: list[list[Hit]]) -> list[list[int]]:
    return [[hit["corpus_id"] for hit in row] for row in hits]


if __name__ == "__main__":
    flags.DEFINE_string(
        "model", "", "System to measure, as evaluation/main.py takes it; peers: the published CNN."
    )
    flags.DEFINE_string("python", ".peers/bin/python", "peers: interpreter of their environment.")
    flags.DEFINE_string("pair", "en-es", "training: preset whose model is measured.")
    flags.DEFINE_integer("steps", 30, "training: steps that are timed.", lower_bound=2)
    flags.DEFINE_string("data", str(SAMPLE_FOLDER), "Folder of corpora.")
    flags.DEFINE_string("corpus", "tatoeba", "vectors: translations of this name.")
    flags.DEFINE_string("source", "en", "Language of the queries.")
    flags.DEFINE_string("target", "es", "Language that is searched.")
    flags.DEFINE_integer("sentences", 100_000, "vectors, memory: so many texts, at most.", lower_bound=100)
    flags.DEFINE_integer("queries", 1000, "vectors: queries, at most.", lower_bound=1)
    flags.DEFINE_string("output", None, "Where the figures are written.")
    app.run(main, flags_parser=parse_flags_and_files)
