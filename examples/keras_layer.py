"""Trains a Keras 3 model whose first layer is the encoder, and saves both.

python examples/keras_layer.py exported/use-multilingual reviews.keras
"""

import sys

import keras
import numpy as np

import xling_tf

good = ["I loved it.", "Wonderful!", "The best film of the year.", "We had a great time."]
bad = ["A waste of time.", "Terrible service.", "I was bored and left early.", "Never again."]
texts, is_good = np.array(good + bad, dtype=object), np.array([1] * 4 + [0] * 4)
model = keras.Sequential(
    [
        keras.Input((), dtype="string"),
        xling_tf.KerasEncoder(sys.argv[1], trainable=False),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy")
model.fit(texts, is_good, epochs=20, verbose=0)
model.save(sys.argv[2])
others = np.array(["Me encantó.", "Una pérdida de tiempo."], dtype=object)
for text, probability in zip(others, model.predict(others, verbose=0)[:, 0], strict=True):
    print(f"{probability:.2f}  {text}")
