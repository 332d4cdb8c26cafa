"""The model card: the README of an exported model."""

from collections.abc import Mapping, Sequence
from typing import Any

from xling_tf.config import DataConfig
from xling_tf.program import format_table
from xling_tf.tasks.signatures import Signature
from xling_tf.tokenizers.base import Tokenizer

_CARD = """# {title}

Sentence encoder for {languages}: strings to {dim}-dimensional vectors of unit length, in which
a sentence and its translation are near each other. {origin}

    import tensorflow_hub as hub{imports}
    encoder = hub.load(".")
{examples}

| signature | inputs | `outputs` |
|---|---|---|
{signatures}

Needs {needs}. Sentences are cut at {max_tokens} tokens.{prefixes}
"""
_TEXT_OPS = "\n    import tensorflow_text                          # the operations of its tokenizer"
_NEEDS = {
    False: "TensorFlow and nothing else",
    True: "TensorFlow and, imported before the model is loaded, tensorflow-text of the same version",
}
_PREFIXES = """
Its vectors can be cut to their first {dims} numbers, and be normalised again: it was trained for that."""
_TRAINING = """
## Training

{steps} steps, {minutes:.1f} minutes. Corpora, in records:

{corpora}

The licences of these corpora may have conditions for the weights; those of the default corpora are listed
in `SOURCES.md` in their folder below `data/prepared`.

## Scores on held-out data

{scores}

Retrieval ranks the right translation among {candidates} candidates. `config.json` describes the model.
`trained_on.npz` has hashes of the training texts, with which evaluation/main.py detects texts that the model
has seen.
"""


def model_card(
    title: str,
    origin: str,
    languages: Sequence[str],
    tokenizer: Tokenizer,
    signatures: Mapping[str, Signature],
    matryoshka_dims: Sequence[int] = (),
) -> str:
    """Writes the model card.

    Args:
        title: Name of the model.
        origin: A sentence on where the weights are from.
        languages: Codes of its languages.
        tokenizer: Its tokenizer.
        signatures: Its signatures by name.
        matryoshka_dims: Lengths of the prefixes of vectors that were trained too.

    Returns:
        The card in Markdown.
    """
    needs_text_ops = tokenizer.needs_text_ops
    dim = signatures["serving_default"].encoder.hidden_dim
    abouts = [signature.about for signature in signatures.values()]
    rows = (
        (f"`{about.name}`", ", ".join(f"`{name}`" for name in about.inputs), about.card) for about in abouts
    )
    return _CARD.format(
        title=title,
        languages=", ".join(languages),
        dim=dim,
        origin=origin,
        imports=_TEXT_OPS if needs_text_ops else "",
        examples="\n".join(
            f"    {about.example.replace('{dim}', str(dim))}" for about in abouts if about.example
        ),
        signatures="\n".join(f"| {' | '.join(row)} |" for row in rows),
        needs=_NEEDS[needs_text_ops],
        max_tokens=tokenizer.config.max_tokens,
        prefixes=_PREFIXES.format(dims=", ".join(map(str, matryoshka_dims))) if matryoshka_dims else "",
    )


def training_card(data: DataConfig, results: Mapping[str, Any]) -> str:
    """Describes how a model was trained and how it scores, for the end of its card.

    Args:
        data: Languages of the experiment.
        results: Content of `results.json`.

    Returns:
        Markdown.
    """
    source, target = data.source, data.targets[0]
    retrieval = results["scores"].get(f"retrieval/{source}-{target}/all", {})
    return _TRAINING.format(
        steps=results["steps"],
        minutes=results["minutes"],
        corpora="\n".join(f"    {name} {count}" for name, count in results["corpora"].items()),
        scores="\n".join(f"    {line}" for line in format_table(results["scores"]).splitlines()),
        candidates=int(retrieval.get("num_candidates", 0)),
    )
