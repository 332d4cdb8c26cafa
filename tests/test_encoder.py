"""The transformer: derived by hand, its variables, and rebuilt from its config."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, encode, require_gradients, tiny_model

TEXTS = ["a b c", "hello", "", "a b c d e f g h i j a b c d", "hola mundo unseen", "😀"]


def tiny(**encoder):
    return tiny_model(dataclasses.replace(TINY, encoder=dataclasses.replace(TINY.encoder, **encoder)))


@pytest.mark.parametrize("norm_first", [False, True])
def test_without_layers_it_is_the_mean_of_the_words(norm_first):
    # With no block: mean over tokens of projected word * sqrt(hidden_dim) + position; where blocks
    # normalise what they take and not what they give, normalised at the end.
    model = tiny(num_layers=0, norm_first=norm_first)
    features = model.tokenizer(tf.constant(["a hello a"]))
    encoder = model.encoder
    words = encoder.static.project(encoder.embed_words(features.words)).numpy()
    tokens = words[[0, 1, 0]] * np.sqrt(8) + encoder.positions[:3]
    if norm_first:
        tokens -= tokens.mean(axis=1, keepdims=True)
        tokens /= np.sqrt(np.square(tokens).mean(axis=1, keepdims=True) + 1e-6)
    assert encode(model, ["a hello a"])[0] == pytest.approx(tokens.mean(axis=0), abs=1e-5)


@pytest.mark.parametrize(("norm_first", "last_norm"), [(False, 0), (True, 16)])
def test_tables_and_dense_variables_are_all_there_is_and_a_gradient_reaches_each(norm_first, last_norm):
    model = tiny(norm_first=norm_first)
    encoder = model.encoder
    tables, dense = encoder.table_variables, encoder.dense_variables
    num_ngrams = model.tokenizer.num_ngrams
    assert [table.shape for table in tables] == [(18, 6), (num_ngrams, 6)]  # 14 words and 4 buckets
    together = {id(variable) for variable in (*tables, *dense)}
    assert len(together) == len(tables) + len(dense)
    assert together == {id(variable) for variable in encoder.trainable_variables}
    # By hand: tables 18*6 = 108 and 6 for each n-gram; n-gram layer 6*6 + 6 = 42; projection 6*8 + 8 = 56;
    # block: 8*24 + 24 = 216, 8*8 + 8 = 72, norms 2*16 = 32, 8*12 + 12 = 108, 12*8 + 8 = 104.
    block = 216 + 72 + 32 + 108 + 104
    assert encoder.count_params() == 108 + 6 * num_ngrams + 42 + 56 + block + last_norm
    require_gradients(encoder, model.tokenizer(tf.constant(TEXTS)))
