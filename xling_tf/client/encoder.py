"""`SentenceEncoder`: makes texts of what users give, and of vectors what they ask for."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError, library, require_known
from . import search
from .backends import Backend, Function
from .batches import compute_in_batches
from .match import KINDS, Line, line_of, probabilities, require_probability
from .neighbours import (
    as_array,
    cosine_similarity,
    pairwise_similarity,
    require_positive,
    truncated,
    unit_vectors,
)
from .quantization import PRECISIONS, Precision, quantize_units
from .settings import role_prompts
from .texts import (
    Texts,
    as_python,
    as_texts,
    describe,
    is_blank,
    is_single,
    require_as_many,
    require_prompt,
    require_unused,
)

# Attributes of sentence-transformers, which there change how texts are encoded or compared.
_UNSETTABLE = (
    "prompts",
    "default_prompt_name",
    "truncate_dim",
    "similarity_fn_name",
    "similarity",
    "similarity_pairwise",
    "max_seq_length",
    "tokenizer",
    "processor",
    "device",
    "dtype",
    "backend",
    "batch_size",
    "precision",
    "normalize_embeddings",
    "modules",
)

_SIDES = ("texts1", "texts2")
_NO_COLUMNS = (Mapping, Set, bytearray, memoryview)


class SentenceEncoder:
    """Encodes texts by a model, and compares and searches them.

    Methods and arguments have the names that sentence-transformers and LangChain use; an
    unsupported option raises a `UserError`. Threads may share an encoder. A text is a string; any
    method takes one, or several in a list, a tuple, an array, a tensor, a column of a table or an
    iterator. A blank text, without a visible character, has the zero vector, which no search finds;
    the model is not run on it. Texts that are given several times are encoded once.

    Args:
        model: A backend, or a function from a list of texts to `[texts, dim]` vectors.
        truncate_dim: Number of dimensions that `encode` keeps by default; None keeps all.

    Attributes:
        prompts: The model's prompts by name, such as {"query": "query: "}.
        default_prompt_name: Name of the prompt that `encode` puts before texts; None for no prompt.

    Examples:
        >>> encoder = SentenceEncoder(lambda texts: [[len(text), 1.0] for text in texts])
        >>> encoder.encode(["Hola", "Bye"]).tolist()
        [[4.0, 1.0], [3.0, 1.0]]
    """

    prompts: dict[str, str]
    default_prompt_name: str | None
    similarity_fn_name = "cosine"  # the measure that `similarity` computes
    _role = "default"  # of the texts that `encode` gets

    def __init__(
        self, model: Backend | Callable[[list[str]], ArrayLike], *, truncate_dim: int | None = None
    ) -> None:
        if truncate_dim is not None:
            require_positive(truncate_dim, "truncate_dim")
        if not isinstance(model, Backend) and not callable(model):
            raise UserError(
                f"expected a model that can be called with sentences, but got {describe(model)}"
            )
        self._backend = model if isinstance(model, Backend) else Function(model)
        self._truncate_dim = truncate_dim
        vars(self).update(
            prompts={"query": "", "document": "", **self._backend.prompts},
            default_prompt_name=self._backend.default_prompt_name,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses attributes of sentence-transformers that would change nothing here."""
        if name in _UNSETTABLE:
            raise UserError(
                f"{name} cannot be set on a loaded model; pass it to `load` or `encode` if they "
                "accept it"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._backend!r}, prompts={self.prompts})"

    def __reduce__(self) -> Any:
        return partial(SentenceEncoder, truncate_dim=self._truncate_dim), (self._backend,)

    def encode(
        self,
        inputs: Texts | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        *,
        precision: Precision = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> Any:
        """Encodes any number of sentences in bounded memory.

        Args:
            inputs: One text or several; `sentences` is another name of this argument.
            prompt_name: Name of one of the model's `prompts`, which is put before each input; None
                for the default prompt.
            prompt: Text to put before each input instead.
            batch_size: Maximum number of sentences in one call of the model; None, or more than
                that, is the model's own.
            show_progress_bar: True shows a progress bar.
            precision: "float32", "int8", "binary" or "ubinary", see `quantize_units`.
            convert_to_numpy: False returns a list of TensorFlow tensors, one for each sentence.
            convert_to_tensor: True returns one TensorFlow tensor instead of a NumPy array.
            normalize_embeddings: False returns vectors of the encoder's own lengths, if the model
                has them. True scales them to unit length, the default of all models but functions.
            truncate_dim: Number of dimensions to keep; shorter vectors are scaled to unit length
                again unless `normalize_embeddings` is False. None: the constructor's
                `truncate_dim`.
            **options: Other options of sentence-transformers, with values that change nothing.

        Returns:
            `[sentences, dim]` float32, or as `precision` says, in the order of the inputs; `[dim]`
            for a single text. A blank text has zeros (in bits: none is set).

        Raises:
            UserError: The inputs are not texts, or the model does not support an option.
        """
        contexts = options.pop("contexts", None)  # of `encode_document`
        if inputs is not None and "sentences" in options:
            raise UserError("inputs and sentences are names of one argument; give one of them")
        texts = options.pop("sentences", None) if inputs is None else inputs
        require_unused(options, lambda: self.device, SentenceEncoder.encode)
        if texts is None:
            raise UserError("inputs must be given: a string or a list of strings")
        columns, is_one = self._columns(texts, contexts)
        role, prompt = self._role_and_prompt(prompt, prompt_name)
        embed = self._embedding(role, precision, normalize_embeddings, truncate_dim)
        batch_size = self._backend.batch_size if batch_size is None else batch_size
        require_positive(batch_size, "batch_size")
        # Each row is encoded once; blank texts are in no row.
        rows: dict[tuple[str, ...], int] = {}
        places = [
            -1 if is_blank(row[0]) else rows.setdefault(row, len(rows))
            for row in zip(*columns, strict=True)
        ]
        unique = [[row[index] for row in rows] for index in range(len(columns))]
        if prompt:
            unique[0] = as_texts([prompt + text for text in unique[0]], "prompt")
        results = compute_in_batches(
            embed,
            unique,
            max_rows=min(batch_size, self._backend.batch_size),
            threads=self._backend.threads,
            show_progress=show_progress_bar,
        )
        vectors = (results or embed(*([] for _ in columns)))["vectors"]
        if len(rows) < len(places):
            # The last vector, in the place -1, is that of blank texts; in "binary", no bit is -128.
            nothing = -128 if precision == "binary" else 0
            vectors = np.pad(vectors, ((0, 1), (0, 0)), constant_values=nothing)[places]
        vectors = vectors[0] if is_one else vectors
        if convert_to_numpy and not convert_to_tensor:
            return vectors
        tensor = library("tensorflow", "tensorflow", "tensorflow").constant(vectors)
        return tensor if convert_to_tensor or vectors.ndim == 1 else list(tensor)

    def encode_query(self, inputs: Texts | None = None, *args: Any, **options: Any) -> Any:
        """Encodes queries, after the prompt for them; takes the arguments of `encode`."""
        return self._for("query").encode(inputs, *args, **options)

    def encode_document(self, inputs: Texts | None = None, *args: Any, **options: Any) -> Any:
        """Encodes documents, or answers, as `encode_query` does queries.

        Args:
            inputs: One text or several.
            *args: Those of `encode`.
            **options: Those of `encode`, and `contexts`, if the model was trained with them: a
                context for each answer, or one for all. Without it, and where it is "", an answer
                is its own context.

        Returns:
            `[inputs, dim]`; `[dim]` for a single text.
        """
        return self._for("document").encode(inputs, *args, **options)

    def _for(self, role: str) -> "SentenceEncoder":
        """Returns this encoder, whose `encode` takes texts of a role."""
        encoder = SentenceEncoder(self._backend, truncate_dim=self._truncate_dim)
        vars(encoder).update(prompts=self.prompts, _role=role)
        return encoder

    def _columns(self, texts: Any, contexts: Texts | None) -> tuple[list[list[str]], bool]:
        """Returns the columns of the backend's inputs, and if they are a single row."""
        if self._role == "document" and self._backend.takes_contexts:
            return as_columns({"inputs": texts, "contexts": "" if contexts is None else contexts})
        if contexts is not None:
            raise UserError("contexts: this model was trained without them; leave them out")
        return [as_texts(texts, "inputs")], is_single(texts)

    def _role_and_prompt(self, prompt: str | None, name: str | None) -> tuple[str, str | None]:
        """Returns the role by which the backend is called, and the prompt to put before texts."""
        require_prompt(prompt)
        role = self._role
        own = role_prompts(self.prompts, self.default_prompt_name)[role]
        if prompt is None and name is not None:
            require_known("prompt_name", name, self.prompts)
            is_own = role != "default" and self.prompts[name] == own
            prompt = None if is_own else self.prompts[name]
        backend_has_role = role in self._backend.roles
        if prompt is None:
            return (role, None) if backend_has_role else ("", own)
        if role == "default" or not backend_has_role:
            return "", prompt
        if any(self.prompts.values()):
            raise UserError(
                "prompt: queries and documents have the model's own prompts; use `encode`"
            )
        return role, prompt

    def _embedding(
        self, role: str, precision: str, normalize: bool | None, truncate_dim: int | None
    ) -> Callable[..., dict[str, NDArray[Any]]]:
        """Returns the function from columns of texts to vectors as they are asked for."""
        require_known("precision", precision, PRECISIONS)
        backend, is_raw = self._backend, normalize is not None and not normalize
        if precision == "int8" and is_raw:
            raise UserError(
                "precision='int8' needs unit vectors; leave out normalize_embeddings=False"
            )
        dim = self._truncate_dim if truncate_dim is None else truncate_dim
        call = backend.embed_raw if is_raw else backend.embed

        def embed(texts: list[str], *contexts: list[str]) -> dict[str, NDArray[Any]]:
            vectors, count = np.asarray(call(texts, role, *contexts), np.float32), len(texts)
            if vectors.ndim != 2 or len(vectors) != count:
                shape = list(vectors.shape)
                raise UserError(
                    f"the model gave shape {shape} for {count} texts, not [{count}, dim]"
                )
            if normalize and not backend.has_units:
                vectors = unit_vectors(vectors, "vectors")
            if dim is not None:
                shorter = truncated(vectors, dim)
                vectors = vectors[:, :dim] if is_raw else shorter
            return {"vectors": quantize_units(vectors, precision)}

        return embed

    def similarity(self, embeddings1: Any, embeddings2: Any) -> NDArray[np.float32]:
        """Computes the cosines `[n, m]` of `n` texts, or vectors `[n, dim]`, and `m` others.

        Examples:
            >>> encoder = SentenceEncoder(lambda texts: [[len(text), 1.0] for text in texts])
            >>> encoder.similarity([1.0, 0.0], [[0.0, 1.0], [3.0, 0.0]]).tolist()
            [[0.0, 1.0]]
            >>> encoder.similarity("Hola", ["4444"]).round(3).tolist()
            [[1.0]]
        """
        return cosine_similarity(self._vectors(embeddings1), self._vectors(embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> NDArray[np.float32]:
        """Computes the cosines `[n]` of texts, or of vectors `[n, dim]`, and as many others."""
        return pairwise_similarity(self._vectors(embeddings1), self._vectors(embeddings2))

    def probability(
        self,
        texts1: Any,
        texts2: Any,
        *,
        kind: str = "same_meaning",
        num_candidates: int = 1,
    ) -> Any:
        """Computes the probability that pairs of texts match, assuming that half of them do.

        It is fitted at the end of a training or an import, or on your own pairs by
        `xling_tf.calibrate`, which makes it reliable for pairs of that kind.

        Args:
            texts1: Texts or their vectors; a single one is compared with each of the others.
            texts2: Texts or their vectors.
            kind: "same_meaning", or "answer" if `texts1` are queries and `texts2` documents.
            num_candidates: Number of texts with which the first text of a pair was compared, such
                as the size of the corpus that a search went through; 1 for a pair alone.

        Returns:
            `[pairs]` float32; a number if both are single texts or vectors. Blank texts have the
            probability 0.

        Raises:
            UserError: The model has no such probability, or the numbers of texts differ.
        """
        require_known("kind", kind, KINDS)
        require_positive(num_candidates, "num_candidates")
        line, sides = self._matched(kind, texts1, texts2)
        first, second = map(unit_vectors, sides, _SIDES)
        if sides[0].ndim != sides[1].ndim:  # one with each of several
            first, second = np.broadcast_arrays(first, second)
        likely = probabilities(pairwise_similarity(first, second), line, num_candidates)
        has_text = first.any(axis=1) & second.any(axis=1)
        result = np.where(has_text, likely, 0).astype(np.float32)
        return float(result[0]) if sides[0].ndim == sides[1].ndim == 1 else result

    def semantic_search(
        self, queries: Any, corpus: Any, top_k: int = 10, min_probability: float | None = None
    ) -> list[list[search.Hit]]:
        """Finds the texts of a corpus with the highest cosines to each query, by exact search.

        Args:
            queries: Texts, or their vectors.
            corpus: Texts, or their vectors, such as those of `encode_document`.
            top_k: Maximum number of hits for each query.
            min_probability: Smallest probability that a hit answers the query, see `probability`.
                A query without an answer in the corpus then has few hits or none, and hits have a
                "probability" beside the score. None: all hits, without it.

        Returns:
            The hits of each query, such as `{"corpus_id": 3, "score": 0.8}`, the best first. Blank
            texts are in no result, and a blank query has none.

        Raises:
            UserError: The model has no probability of answers, or `min_probability` is no number
                from 0 to 1.
        """
        if min_probability is None:
            vectors = self._vectors(queries, "query"), self._vectors(corpus, "document")
            return search.semantic_search(*vectors, top_k=top_k)
        require_probability(min_probability, "min_probability")
        line, (query_vectors, corpus_vectors) = self._matched("answer", queries, corpus)
        num_candidates = max(1, len(np.atleast_2d(corpus_vectors)))
        results = search.semantic_search(query_vectors, corpus_vectors, top_k=top_k)
        for hits in results:
            likely = probabilities([hit["score"] for hit in hits], line, num_candidates).tolist()
            for hit, probability in zip(hits, likely, strict=True):
                hit["probability"] = probability
        return [[hit for hit in hits if hit["probability"] >= min_probability] for hits in results]

    def _matched(self, kind: str, texts1: Any, texts2: Any) -> tuple[Line, list[NDArray[Any]]]:
        """Returns the line of a kind of match, and both sides' vectors; a single one is `[dim]`."""
        line, roles = line_of(self._backend.match, kind), KINDS[kind]
        vectors = map(self._vectors, (texts1, texts2), roles)
        arrays = [*map(as_array, vectors, _SIDES)]
        for array in arrays:
            if self._truncate_dim is not None or (array.size and array.shape[-1] != self.dim):
                raise UserError(
                    "a probability needs all numbers of the model's vectors, as floats or int8, "
                    f"got {array.shape[-1]} of {self.dim}; leave out `truncate_dim`, and bits"
                )
        return line, [array if array.size else array.reshape(0, self.dim) for array in arrays]

    def paraphrase_mining(self, sentences: Texts, **options: Any) -> list[search.ScoredPair]:
        """Finds the most similar pairs; takes the options of the function `paraphrase_mining`."""
        return search.paraphrase_mining(self, sentences, **options)

    def embed_documents(self, texts: Texts) -> list[list[float]]:
        """Encodes documents for LangChain."""
        return self.encode_document(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Encodes a query for LangChain."""
        return self.encode_query(text).tolist()

    async def aembed_documents(self, texts: Texts) -> list[list[float]]:
        """Encodes documents for LangChain in a thread."""
        import asyncio  # here, because it takes time

        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Encodes a query for LangChain in a thread."""
        import asyncio  # here, because it takes time

        return await asyncio.to_thread(self.embed_query, text)

    def _vectors(self, values: Any, role: str = "default") -> Any:
        """Returns the vectors of texts, and anything else as it is."""
        values = list(values) if isinstance(values, Iterator) else values
        return self._for(role).encode(values) if _are_texts(values) else values

    @cached_property
    def dim(self) -> int:
        """Number of dimensions of the vectors."""
        return int(self.encode([]).shape[1])

    def get_embedding_dimension(self) -> int:
        """The same as `dim`, by sentence-transformers' name."""
        return self.dim

    get_sentence_embedding_dimension = get_embedding_dimension  # the name in older versions

    @property
    def match(self) -> Mapping[str, Line]:
        """Slope and intercept by the kind of match, from which `probability` is computed."""
        return self._backend.match

    @property
    def device(self) -> str:
        """The device of the model: "cpu", or "cuda" for a SavedModel if TensorFlow sees a GPU."""
        return self._backend.device


def as_columns(inputs: Mapping[str, Any]) -> tuple[list[list[str]], bool]:
    """Makes inputs columns of one length, repeating single texts; tells if all are single."""
    columns = {name: as_texts(texts, name) for name, texts in inputs.items()}
    several = [name for name, texts in inputs.items() if not is_single(texts)]
    for name in several:
        require_as_many(columns[name], columns[several[0]], f"texts in {name}", several[0])
    count = len(columns[several[0]]) if several else 1
    return [c if name in several else c * count for name, c in columns.items()], not several


def _are_texts(values: Any) -> bool:
    """True for what `as_texts` takes or refuses, False for vectors and for nothing at all."""
    dtype = getattr(values, "dtype", None)
    name = getattr(dtype, "name", "")
    if getattr(dtype, "kind", "") in ("f", "i", "u") or "float" in name or "int" in name:
        return False
    is_column = isinstance(values, Iterable) and not isinstance(values, _NO_COLUMNS)
    if is_single(values) or not is_column:
        return True
    if len(getattr(values, "shape", ())) > 1:
        return False
    first = next(iter(values), None)
    return isinstance(as_python(first), str | bytes) or (
        first is None and any(True for _ in values)
    )
