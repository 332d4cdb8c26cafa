"""The README inside an exported model."""

from collections.abc import Mapping
from typing import Any

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.evaluators.data import format_table

_CARD = """# {title}

Sentence encoder for {languages}: strings to {dim}-dimensional vectors of unit length, in which
a sentence and its translation are near each other. Trained by xling_tf {version}, preset
`{preset}`: {description}.

    import tensorflow_hub as hub{imports}
    encoder = hub.load(".")
    encoder(["Hola", "Hello"])                      # float32 [2, {dim}]
{responses}{inference[call]}
Signatures `serving_default` and `default` take `inputs`; `question_encoder` and `response_encoder` take
`input`{context}; {inference[signature]}all give `outputs`. Needs {needs}.
Sentences are cut at {max_tokens} tokens.{prefixes}

## Training

{steps} steps, {minutes:.1f} minutes. Corpora, in records:

{corpora}

The weights carry what these corpora's licences ask for; for the default corpora they are listed in
`SOURCES.md` in their folder below `data/prepared`.

## Scores on held-out data

{scores}

Retrieval ranks the right translation among {candidates} candidates. `config.json` holds every setting,
and `trained_on.npz` hashes of the training texts, which tell evaluation/main.py what the model has seen.
"""

_NEEDS = {
    "treebank": {"imports": "", "needs": "TensorFlow and nothing else"},
    "sentencepiece": {
        "imports": "\n    import tensorflow_text                          # the operations of SentencePiece",
        "needs": "TensorFlow and, imported before it is loaded, tensorflow-text of the same version",
    },
}

# What its encoder of responses was trained for.
_REPLIES = '    encoder.response_encoder(["Fine, thanks."])     # replies, near the messages they answer\n'
_ANSWERS = """\
    encoder.question_encoder(["Where is it?"])      # near its answer by the next line
    encoder.response_encoder(["It is in Rome."]{})
"""
_CONTEXT_CALL = ', ["The paragraph that this is from."]'
_CONTEXT_SIGNATURE = ", the latter also `context`, where an empty one means the answer"

_PREFIXES = """
It was trained so that its vectors can be cut to their first {dims} numbers, and be made of unit
length again."""

# What a model with a head for inference has more.
_INFERENCE = {
    "call": '    encoder.inference(["A cat sleeps."], ["Un gato duerme."])   '
    f"# float32 [1, 3]: {', '.join(NLI_LABELS)}\n",
    "signature": "`inference` takes `premise` and `hypothesis`; ",
}


def model_card(preset: str, config: ExperimentConfig, results: Mapping[str, Any]) -> str:
    """Describes a trained model, with the content of `results.json`, to the person who finds it."""
    source, targets = config.data.source, config.data.targets
    is_inferring = any(name.startswith("task/inference") for name in results["scores"])
    is_answering = any(name.startswith("task/question_answering") for name in results["scores"])
    with_context = is_answering and config.tasks.question_answering.with_context
    answers = _ANSWERS.format(_CONTEXT_CALL if with_context else "")
    dims = config.tasks.similarity.matryoshka_dims
    retrieval = results["scores"].get(f"retrieval/{source}-{targets[0]}/all", {})
    return _CARD.format(
        title=preset,
        languages=", ".join((source, *targets)),
        dim=config.encoder.hidden_dim,
        version=results["versions"]["xling_tf"],
        preset=preset,
        description=config.description,
        max_tokens=config.text.max_tokens,
        prefixes=_PREFIXES.format(dims=", ".join(map(str, dims))) if dims else "",
        responses=answers if is_answering else _REPLIES,
        context=_CONTEXT_SIGNATURE if with_context else "",
        inference=_INFERENCE if is_inferring else dict.fromkeys(_INFERENCE, ""),
        **_NEEDS[config.text.tokenizer],
        steps=results["steps"],
        minutes=results["minutes"],
        corpora="\n".join(f"    {name} {count}" for name, count in results["corpora"].items()),
        scores="\n".join(f"    {line}" for line in format_table(results["scores"]).splitlines()),
        candidates=int(retrieval.get("num_candidates", 0)),
    )
