"""What every encoder does, whatever model it has: functions of an encoder that check one thing
each.

The client of a wheel runs them in a process without this package, so NumPy alone is imported here.
"""

import asyncio
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np

TEXTS = ["the cat sleeps", "a dog", "el perro duerme en el jardín", "¿dónde? aquí", "a dog", " \n"]
BLANK = 5
TOLERANCE = 2e-6  # of vectors
# What is no text, nor several in an order.
REFUSED = [None, 5, {"a": "b"}, {"a"}, bytearray(b"a"), np.array([["a"]]), ["a", None], [["a"]]]


def raises(call, *words):
    message = ""
    try:
        call()
    except ValueError as error:
        message = f"{type(error).__name__}: {error}"
    assert message.startswith("UserError: "), f"{message or 'nothing was raised'}, not {words}"
    assert all(word in message for word in words), message
    assert "\n" not in message


def units(encoder):
    return encoder.encode(TEXTS, normalize_embeddings=True)


def close(first, second):
    np.testing.assert_allclose(np.asarray(first), np.asarray(second), atol=TOLERANCE)


def one_text_or_several_keep_their_shape_and_order(encoder):
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dim)
    assert vectors.dtype == np.float32
    assert encoder.encode([]).shape == (0, encoder.dim)
    assert encoder.encode(TEXTS[0]).shape == (encoder.dim,)
    close(np.stack([encoder.encode(text) for text in TEXTS]), vectors)
    close(encoder.encode(TEXTS[::-1], batch_size=1)[::-1], vectors)


def vectors_differ_and_have_unit_length(encoder):
    lengths = np.linalg.norm(units(encoder), axis=1)
    close(lengths, [1, 1, 1, 1, 1, 0])
    assert len(np.unique(units(encoder).round(4), axis=0)) == len({*TEXTS})


def all_forms_of_texts_are_the_same(encoder):
    vectors = encoder.encode(TEXTS)
    encoded = np.array([text.encode() for text in TEXTS], object)
    for texts in (tuple(TEXTS), (text for text in TEXTS), np.array(TEXTS), encoded):
        close(encoder.encode(texts), vectors)
    close(encoder.encode(sentences=TEXTS), vectors)
    close(encoder.encode(b"a dog"), vectors[1])
    close(encoder.encode("a\ud800dog"), vectors[1])


def what_is_no_text_is_refused_in_one_line(encoder):
    for encode in (encoder.encode, encoder.encode_query, encoder.embed_documents):
        for value in REFUSED:
            raises(lambda encode=encode, value=value: encode(value), "must be", "string")
        raises(lambda encode=encode: encode(["a", b"\xff"]), "UTF-8")


def blank_texts_are_zeros_and_win_no_search(encoder):
    assert not units(encoder)[BLANK].any()
    assert not encoder.encode("\u200b").any()
    assert encoder.semantic_search(" ", TEXTS) == [[]]
    (hits,) = encoder.semantic_search(TEXTS[0], TEXTS)
    assert BLANK not in [hit["corpus_id"] for hit in hits]
    assert len(hits) == len(TEXTS) - 1


def vectors_are_shortened_and_rounded_as_asked(encoder):
    vectors = units(encoder)
    short = vectors[:, :8] / np.maximum(np.linalg.norm(vectors[:, :8], axis=1), 1e-9)[:, None]
    options = {"truncate_dim": 8, "normalize_embeddings": True}
    close(encoder.encode(TEXTS, **options), short)
    bits = encoder.encode(TEXTS, precision="ubinary", **options)
    assert bits.tolist() == np.packbits(short > 0, axis=1).tolist()
    signed = encoder.encode(TEXTS, precision="binary", **options)
    assert signed.tolist() == (bits.astype(int) - 128).tolist()
    rounded = encoder.encode(TEXTS, precision="int8", **options)
    assert rounded.dtype == np.int8
    # Steps of 10 / sqrt(dim) / 255.
    step = 10 / np.sqrt(8) / 255
    inside = np.abs(short) < 5 / np.sqrt(8) - step
    assert np.abs((rounded + 128.0) * step - 5 / np.sqrt(8) - short)[inside].max() < 0.51 * step
    raises(lambda: encoder.encode(TEXTS, precision="int4"), "precision", "int8")
    raises(lambda: encoder.encode(TEXTS, truncate_dim=1000), "truncate_dim")
    raises(lambda: encoder.encode(TEXTS, batch_size=0), "batch_size")


def options_without_effect_are_taken_and_others_refused(encoder):
    options = {"device": "cpu", "output_value": "sentence_embedding", "convert_to_numpy": True}
    close(encoder.encode(TEXTS, None, None, 2, False, **options), encoder.encode(TEXTS))
    raises(lambda: encoder.encode(TEXTS, output_value="token_embeddings"), "output_value")
    raises(lambda: encoder.encode(TEXTS, batchsize=3), "batchsize=int 3", "mean batch_size?")
    raises(lambda: encoder.encode(TEXTS, sentences=TEXTS), "inputs and sentences")
    raises(lambda: encoder.encode(), "inputs must be given")
    raises(lambda: encoder.encode(TEXTS, prompt_name="topic"), "prompt_name", "query")
    raises(lambda: encoder.encode(TEXTS, prompt=3), "prompt")
    raises(lambda: encoder.encode_document(TEXTS, contexts=TEXTS), "contexts")
    for name in ("truncate_dim", "max_seq_length", "prompts", "default_prompt_name"):
        raises(lambda name=name: setattr(encoder, name, 1), name)


def prompts_are_put_before_texts(encoder):
    close(encoder.encode("dog", prompt="a "), encoder.encode("a dog", prompt=""))
    query, document = (encoder.prompts.get(name, "") for name in ("query", "document"))
    text = "el perro duerme"
    close(encoder.encode_query(text), encoder.encode(query + text, prompt=""))
    close(encoder.encode_document([text])[0], encoder.encode(document + text, prompt=""))
    close(encoder.encode_query(text, prompt_name="query"), encoder.encode_query(text))
    close(encoder.encode_query(prompt_name=None, inputs=text), encoder.encode_query(text))


def texts_and_vectors_are_compared_alike(encoder):
    vectors = units(encoder)
    close(encoder.similarity(TEXTS, TEXTS), vectors @ vectors.T)
    close(encoder.similarity(3 * vectors, vectors.tolist()), vectors @ vectors.T)
    close(encoder.similarity(TEXTS[0], TEXTS[1]), [[vectors[0] @ vectors[1]]])
    close(encoder.similarity_pairwise(TEXTS, TEXTS[::-1]), np.sum(vectors * vectors[::-1], axis=1))
    assert encoder.similarity([], TEXTS).shape == (0, len(TEXTS))
    raises(lambda: encoder.similarity(TEXTS, np.ones((2, 3), np.float32)), "3")
    raises(lambda: encoder.similarity({"a": 1}, TEXTS), "dict")
    pairs = encoder.paraphrase_mining(TEXTS, max_pairs=1)
    assert [(pair.first, pair.second) for pair in pairs] == [(1, 4)]
    (hits,) = encoder.semantic_search(
        encoder.encode_query(TEXTS[2]), encoder.encode_document(TEXTS), top_k=2
    )
    documents = encoder.encode_document(TEXTS, normalize_embeddings=True)
    cosines = documents @ encoder.encode_query(TEXTS[2], normalize_embeddings=True)
    order = np.argsort(-cosines, kind="stable")[:2]
    assert [hit["corpus_id"] for hit in hits] == order.tolist()
    close([hit["score"] for hit in hits], cosines[order])


def langchain_can_call_it(encoder):
    documents, query = encoder.embed_documents(TEXTS), encoder.embed_query(TEXTS[0])
    close(documents, encoder.encode_document(TEXTS))
    close(query, encoder.encode_query(TEXTS[0]))
    assert isinstance(query, list)
    assert isinstance(documents[0][0], float)

    async def both():
        return await encoder.aembed_documents(TEXTS), await encoder.aembed_query(TEXTS[0])

    assert asyncio.run(both()) == (documents, query)


def threads_may_share_it(encoder):
    vectors = encoder.encode(TEXTS)
    with ThreadPoolExecutor(4) as threads:
        for result in threads.map(lambda _: encoder.encode(TEXTS * 3, batch_size=2), range(8)):
            close(result, np.tile(vectors, (3, 1)))


def pickling_loads_it_again(encoder):
    close(pickle.loads(pickle.dumps(encoder.encode))(TEXTS), encoder.encode(TEXTS))


def a_forked_process_encodes_and_ends(encoder):
    vectors = encoder.encode(TEXTS)
    child = os.fork()
    if not child:
        status = 1
        try:
            close(encoder.encode(TEXTS), vectors)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    close(encoder.encode(TEXTS), vectors)


EVERYWHERE = (
    one_text_or_several_keep_their_shape_and_order,
    vectors_differ_and_have_unit_length,
    all_forms_of_texts_are_the_same,
    what_is_no_text_is_refused_in_one_line,
    blank_texts_are_zeros_and_win_no_search,
    vectors_are_shortened_and_rounded_as_asked,
    options_without_effect_are_taken_and_others_refused,
    prompts_are_put_before_texts,
    texts_and_vectors_are_compared_alike,
    langchain_can_call_it,
    threads_may_share_it,
)
# Of what is loaded from a file, not by TensorFlow.
FROM_FILES = (pickling_loads_it_again, a_forked_process_encodes_and_ends)
