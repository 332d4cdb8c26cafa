"""The model card: the README of an exported model, with the metadata for Hugging Face's search."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_tf.program import format_table
from xling_tf.savedmodel.saved_models import card_section, read_front_matter
from xling_tf.tasks.signatures import Signature

_CARD = """# {title}

Sentence encoder{languages}: strings to {dim}-dimensional vectors of unit length, which
are near each other if sentences mean the same. {origin}

    import tensorflow_hub as hub{imports}
    encoder = hub.load(".")
{examples}

| signature | inputs | `outputs` |
|---|---|---|
{signatures}

Needs {needs}. Sentences are cut at {max_tokens} tokens.{shorter}

`docs/interop.md` of xling_tf lists the other libraries and servers that can load it, with a command
for each.
"""
_TASK = "sentence-similarity"
_TEXT_OPS = (
    "\n    import tensorflow_text                          # the operations of its tokenizer"
)
_NEEDS = {
    False: "TensorFlow and nothing else",
    True: "TensorFlow and, imported before the model is loaded, the same version of "
    "tensorflow-text",
}
_MATRYOSHKA = """
It was trained so that its vectors can be cut to their first {dims} dimensions and normalised
again."""
_TRAINING = """
## Training

{run[steps]} steps, in {run[precision]}, by
{run[config][optimizer][name]} at a learning rate of {run[config][optimizer][learning_rate]}.
Examples in a batch: {batches}. Corpora, in records:

    {corpora}

The licences of these corpora may have conditions for the weights; those of the default corpora are
listed in `SOURCES.md` in their folder below `data/prepared`. `config.json` describes the model.
`trained_on.npz` has hashes of the training texts, with which xling-tf evaluate detects texts that
the model has seen.
"""
_START = """
It starts from `{name}`{licence}.
"""
_EXAMPLES = """
Two of the pairs that it was trained on:

{pairs}
"""
_COSINES = """
## Cosines with "{sentence}"

    {cosines}
"""
# Not from the corpora, which may be private.
_SENTENCES = (
    ("en", "Where is the station?"),
    ("en", "How do I get to the station?"),
    ("en", "Tomorrow it will rain."),
    ("es", "¿Dónde está la estación?"),
    ("fr", "Où est la gare ?"),
    ("de", "Wo ist der Bahnhof?"),
    ("zh", "车站在哪里？"),
)
_SCORES = """
## Scores on held-out data

    {scores}

Retrieval ranks the right translation among `num_candidates`.
"""
_LEARNED_TEXTS = """The weights were trained on text of these packages of Debian and Python, each \
with its version and its
licence:"""
_LEARNED_VECTORS = """They learned the vectors that the model {name} (licence {licence}) gives to \
these texts and to single
words; its own weights are not among them. Where those are from:

{origin}"""
_CITATION = """
## Citation

    @software{xling_tf,
      title = {xling_tf: cross-lingual sentence encoders in TensorFlow},
      author = {{The xling_tf authors}},
    }

`docs/research/papers.md` of xling_tf names the papers whose systems it trains.
"""


def model_card(
    title: str,
    origin: str,
    config: Mapping[str, Any],
    signatures: Mapping[str, Signature],
    *,
    licence: str,
    base_model: str = "",
    results: Mapping[str, Any] | None = None,
) -> str:
    """Returns the model card in Markdown, after metadata in YAML.

    Args:
        title: Name of the model.
        origin: A sentence on where the weights are from.
        config: Content of the model's `config.json`.
        signatures: Its signatures by name.
        licence: The licence of its weights, by its name at Hugging Face; "" if it is unknown.
        base_model: Name at Hugging Face of the model that it was made from; "" if there is none.
        results: Content of `results.json`, whose corpora and scores become metadata; None if there
            is none.
    """
    encoder = signatures["serving_default"].encoder
    languages, dim = config["info"]["languages"], encoder.hidden_dim
    examples = (
        signature.description.example.replace("{dim}", str(dim))
        for signature in signatures.values()
    )
    rows = []
    for signature in signatures.values():
        description = signature.description
        inputs = ", ".join(f"`{name}`" for name in description.inputs)
        prompt = f"; puts `{signature.prompt}` before texts" if signature.prompt else ""
        rows.append(f"| `{description.name}` | {inputs} | {description.card}{prompt} |")
    dims = config["info"]["similarity"]["matryoshka_dims"]
    return _metadata(title, languages, licence, base_model, results or {}) + _CARD.format(
        title=title,
        languages=f" for {', '.join(languages)}" if languages else "",
        dim=dim,
        origin=origin,
        imports=_TEXT_OPS if encoder.tokenizer.needs_text_ops else "",
        examples="\n".join(f"    {example}" for example in examples if example),
        signatures="\n".join(rows),
        needs=_NEEDS[encoder.tokenizer.needs_text_ops],
        max_tokens=config["tokenizer"]["max_tokens"],
        shorter=_MATRYOSHKA.format(dims=", ".join(map(str, dims))) if dims else "",
    )


def _metadata(
    title: str, languages: Sequence[str], licence: str, base_model: str, results: Mapping[str, Any]
) -> str:
    """Returns Hugging Face's model card metadata, a JSON value a line, which is also YAML."""
    # Corpora in files have names that mean nothing to the hub.
    scores = [
        {
            "task": {"type": _TASK},
            "dataset": {"type": dataset, "name": dataset},
            "metrics": [
                {"type": metric, "value": round(value, 4)}
                for metric, value in values.items()
                if not metric.startswith("num_")
            ],
        }
        for dataset, values in results.get("scores", {}).items()
        if not dataset.startswith("task/")  # losses and accuracies of training
    ]
    fields = {
        "language": list(languages),
        "license": licence,
        "license_name": "licences-of-the-corpora"
        if licence == "other" and results.get("corpora")
        else "",
        "library_name": "tensorflow",
        "pipeline_tag": _TASK,
        "tags": ["tensorflow", "tf-hub", "feature-extraction", "xling_tf"],
        "base_model": base_model,
        "model-index": [{"name": title, "results": scores}] if scores else [],
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items() if value]
    return "\n".join(["---", *lines, "---", "", ""])


def training_notice(licences: Mapping[str, str], teachers: Sequence[str]) -> str:
    """Returns what a NOTICE says of the texts and the models that weights learned from.

    Args:
        licences: Packages of each corpus with their licences, see `corpora.folder.corpus_licences`.
        teachers: Folders of models; "" stands for none.

    Returns:
        The text; "" if nothing is known of either.
    """
    parts = []
    if licences:
        lines = "\n".join(f"- {name}: {packages}" for name, packages in licences.items())
        parts.append(f"{_LEARNED_TEXTS}\n\n{lines}")
    for teacher in dict.fromkeys(filter(None, teachers)):
        folder = Path(teacher)
        if origin := card_section(folder, "Where the weights are from"):
            licence = ", ".join(read_front_matter(folder, "license")) or "not stated"
            parts.append(_LEARNED_VECTORS.format(name=folder.name, licence=licence, origin=origin))
    return "\n\n".join(parts) + "\n" if parts else ""


def training_card(results: Mapping[str, Any]) -> str:
    """A model card's end: by results.json, how it was trained and, if known, how it scores."""
    tasks = results["config"]["tasks"].items()
    batches = (f"{task['examples_per_batch']} of {name}" for name, task in tasks if task["weight"])
    corpora = "\n    ".join(f"{name} {count}" for name, count in results["corpora"].items())
    parts = [_TRAINING.format(run=results, batches=", ".join(batches), corpora=corpora)]
    if start := results.get("start"):
        licence = f", whose licence is {start['licence']}" if start["licence"] else ""
        parts.append(_START.format(name=start["name"], licence=licence))
    if examples := results.get("examples"):
        pairs = "\n".join(f"    {first}\n    {second}\n" for first, second in examples)
        parts.append(_EXAMPLES.format(pairs=pairs.rstrip()))
    if results["cosines"]:
        (sentence, _), *others = results["cosines"].items()
        lines = (f"{cosine:5.2f}  {text}" for text, cosine in others)
        parts.append(_COSINES.format(sentence=sentence, cosines="\n    ".join(lines)))
    if results["scores"]:
        parts.append(_SCORES.format(scores=format_table(results["scores"]).replace("\n", "\n    ")))
    if comparison := results.get("comparison"):
        parts.append(f"\n{comparison}.\n")
    return "".join([*parts, _CITATION])


def example_cosines(
    encode: Callable[[list[str]], Any], languages: Sequence[str]
) -> dict[str, float]:
    """Returns example sentences in the given languages, each with its cosine with the first."""
    texts = [text for language, text in _SENTENCES if language in languages]
    if not texts:
        return {}
    vectors = encode(texts)
    return dict(zip(texts, (vectors @ vectors[0]).tolist(), strict=True))
